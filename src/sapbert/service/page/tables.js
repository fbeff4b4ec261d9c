// Parse and write lists and tables as text, with quotes as in RFC 4180.

const DELIMITERS = ["\t", ",", ";", "|"];
const SAMPLE_CHARACTERS = 10_000;
const SAMPLE_ROWS = 50;
const MENTION_COLUMN = /diagnos|mention|disease|symptom|condition|indication|term|name|label|text|descri|verbatim/i;

/** Decode the bytes of a file. Excel writes UTF-8, UTF-16 or Windows-1252. */
export function decode(bytes) {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (bytes.includes(0)) throw new Error("This file is not text. Save a spreadsheet as CSV first.");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** The mentions of a plain list. */
export const readList = (text) =>
  text.split(/\r\n|\r|\n/).map((line) => line.trim()).filter(Boolean).map((line) => [line]);

/** Rows of a table, padded to the same length, without empty rows. */
export function readTable(text, delimiter) {
  const rows = readRows(text, delimiter);
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  return rows.map((row) => [...row, ...Array(width - row.length).fill("")]);
}

function readRows(text, delimiter) {
  const rows = [];
  let row = [];
  let field = "";
  const endRow = () => {
    row.push(field);
    if (row.some((value) => value.trim())) rows.push(row);
    row = [];
    field = "";
  };
  for (let at = 0; at < text.length;) {
    const sign = text[at];
    if (sign === '"' && field === "") {
      [field, at] = readQuoted(text, at + 1);
    } else if (sign === delimiter) {
      row.push(field);
      field = "";
      at += 1;
    } else if (sign === "\n" || sign === "\r") {
      endRow();
      at += 1; // \r\n ends a second, empty row, which is left out
    } else {
      const end = plainEnd(text, at + 1, delimiter);
      field += text.slice(at, end);
      at = end;
    }
  }
  endRow();
  return rows;
}

function readQuoted(text, start) {
  let field = "";
  for (let at = start; ;) {
    const end = text.indexOf('"', at);
    if (end < 0) return [field + text.slice(at), text.length];
    field += text.slice(at, end);
    if (text[end + 1] !== '"') return [field, end + 1];
    field += '"';
    at = end + 2;
  }
}

function plainEnd(text, at, delimiter) {
  while (at < text.length && text[at] !== delimiter && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return at;
}

/** The delimiter that splits the first lines into equally many fields, and into the most; null for a list. */
export function guessDelimiter(text) {
  let best = null;
  let most = 1;
  for (const delimiter of DELIMITERS) {
    const rows = readRows(text.slice(0, SAMPLE_CHARACTERS), delimiter);
    if (text.length > SAMPLE_CHARACTERS) rows.pop(); // probably incomplete
    const width = rows[0]?.length ?? 0;
    const even = rows.length > 1 && rows.every((row) => row.length === width);
    if (even && width > most) [best, most] = [delimiter, width];
  }
  return best;
}

/** Whether commas look like prose ("diabetes, type II") rather than a table. */
export const looksLikeProse = (text, delimiter) =>
  delimiter === "," && /,[^\S\r\n]/.test(text.slice(0, SAMPLE_CHARACTERS));

/** The most likely column of mentions: by its name, else the one with the most letters. */
export function guessColumn(rows) {
  const named = rows[0].findIndex((name) => MENTION_COLUMN.test(name) && !/id$|code/i.test(name));
  if (named >= 0) return named;
  const letters = rows[0].map((_, column) =>
    rows.slice(1, SAMPLE_ROWS).reduce((sum, row) => sum + row[column].replace(/[^\p{L}]/gu, "").length, 0));
  return letters.indexOf(Math.max(...letters));
}

/** Rows as text; undefined and null are empty. */
export function writeTable(rows, delimiter) {
  const special = new RegExp(`["\\r\\n${delimiter}]`);
  const field = (value) => {
    const text = String(value ?? "");
    return special.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(field).join(delimiter)}\n`).join("");
}
