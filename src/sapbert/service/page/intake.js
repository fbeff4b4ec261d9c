// The start view: paste a list, or drop or choose a file; for a table, choose the column.

import { find, make, notice, quantity } from "./dom.js";
import { decode, guessColumn, guessDelimiter, looksLikeProse, readList, readTable } from "./tables.js";

const PREVIEW_ROWS = 5;
const DELIMITERS = { csv: ",", tsv: "\t" };
const EXAMPLE = [
  "Heart attack", "high blood presure", "diabetes, type II", "swollen joints", "stuffy nose",
  "trouble falling asleep", "kidney stones", "ringing in the ears", "acid reflux", "shortness of breath",
  "seizures", "breast cancer", "lazy eye", "water on the brain", "purple elephant",
];

export class Intake {
  #input = { text: "", delimiter: null };

  /** `begin({ columns, column, rows })` is called with the input. */
  constructor(begin) {
    this.begin = begin;
    const text = find("text");
    find("begin").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#useText(text.value);
    });
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("begin").requestSubmit();
    });
    find("example").addEventListener("click", () => this.#useList(EXAMPLE.join("\n")));
    find("file").addEventListener("change", (event) => {
      this.#useFile(event.target.files[0]);
      event.target.value = ""; // the same file may be chosen again
    });
    this.#wireColumnChooser();
    acceptDrops((file) => this.#useFile(file));
  }

  #wireColumnChooser() {
    const chooser = find("chooser");
    find("lines").addEventListener("click", () => {
      this.#useList(this.#input.text);
      chooser.close();
    });
    find("columns").addEventListener("submit", (event) => {
      event.preventDefault();
      this.begin(chosenColumn(this.#input));
      chooser.close();
    });
    find("header").addEventListener("change", () => preview(this.#input));
    chooser.addEventListener("close", () => {
      this.#input = { text: "", delimiter: null }; // do not keep patient data longer than needed
      find("preview").replaceChildren();
    });
  }

  #useList(text) {
    this.begin({ columns: ["mention"], column: 0, rows: readList(text) });
  }

  /** Use a text, with the name of its file if any, as input; if it may be a table, ask for the column. */
  #useText(text, name = "") {
    notice();
    const delimiter = guessDelimiter(text) ?? DELIMITERS[name.toLowerCase().split(".").pop()] ?? null;
    if (!text.trim()) {
      notice("The input is empty. Enter one mention per line, or a table with a header.");
    } else if (delimiter === null || (!name && looksLikeProse(text, delimiter))) {
      this.#useList(text);
    } else {
      this.#input = { text, delimiter };
      find("header").checked = true;
      preview(this.#input);
      find("chooser").showModal();
    }
  }

  async #useFile(file) {
    if (!file) return;
    try {
      this.#useText(decode(new Uint8Array(await file.arrayBuffer())), file.name);
    } catch (error) {
      notice(error.message);
    }
  }
}

function acceptDrops(useFile) {
  const mark = (on) => find("start").classList.toggle("dropping", on);
  window.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(true);
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) mark(false);
  });
  window.addEventListener("drop", (event) => {
    event.preventDefault(); // else the browser opens the file instead of the page
    mark(false);
    if (find("start").hidden) notice("Forget the current list before you drop another file.");
    else useFile(event.dataTransfer.files[0]);
  });
}

function readInput({ text, delimiter }) {
  const rows = readTable(text, delimiter);
  const named = find("header").checked && rows.length > 1;
  const columns = rows[0].map((name, at) => (named && name.trim()) || `column ${at + 1}`);
  return { columns, rows: named ? rows.slice(1) : rows, column: guessColumn(rows) };
}

function chosenColumn(input) {
  const { columns, rows } = readInput(input);
  return { columns, rows, column: Number(new FormData(find("columns")).get("column")) };
}

/** Show the first rows, with a radio button per column. */
function preview(input) {
  const { columns, rows, column } = readInput(input);
  const heads = columns.map((name, at) =>
    make("th", { scope: "col" }, make("label", {},
      make("input", { type: "radio", name: "column", value: at, checked: at === column }), name)));
  const first = rows.slice(0, PREVIEW_ROWS);
  const body = first.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, value))));
  find("preview").replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
  const summary = `${quantity(rows.length, "row")}, first ${PREVIEW_ROWS} shown.`;
  find("previewed").textContent = rows.length > PREVIEW_ROWS ? summary : "";
}
