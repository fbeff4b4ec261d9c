// The first view: a list is pasted, dropped or chosen, and a table is asked for its column.

import { find, make, notice, some } from "./dom.js";
import { decode, guessColumn, guessDelimiter, looksLikeProse, readList, readTable } from "./tables.js";

const SHOWN = 5;
const ENDINGS = { csv: ",", tsv: "\t" };
const EXAMPLE = [
  "Heart attack", "high blood presure", "diabetes, type II", "swollen joints", "stuffy nose",
  "trouble falling asleep", "kidney stones", "ringing in the ears", "acid reflux", "shortness of breath",
  "seizures", "breast cancer", "lazy eye", "water on the brain", "purple elephant",
];

export class Intake {
  #given = { text: "", delimiter: null };

  /** `begin({ columns, column, rows })` is called with what was taken. */
  constructor(begin) {
    this.begin = begin;
    const text = find("text");
    find("begin").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#take(text.value);
    });
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("begin").requestSubmit();
    });
    find("example").addEventListener("click", () => this.#takeList(EXAMPLE.join("\n")));
    find("file").addEventListener("change", (event) => {
      this.#takeFile(event.target.files[0]);
      event.target.value = ""; // the same file may be chosen again
    });
    this.#wireChooser();
    startDropping((file) => this.#takeFile(file));
  }

  #wireChooser() {
    const chooser = find("chooser");
    find("lines").addEventListener("click", () => {
      this.#takeList(this.#given.text);
      chooser.close();
    });
    find("columns").addEventListener("submit", (event) => {
      event.preventDefault();
      this.begin(chosen(this.#given));
      chooser.close();
    });
    find("header").addEventListener("change", () => preview(this.#given));
    chooser.addEventListener("close", () => {
      this.#given = { text: "", delimiter: null }; // what was forgotten must not linger here
      find("preview").replaceChildren();
    });
  }

  #takeList(text) {
    this.begin({ columns: ["mention"], column: 0, rows: readList(text) });
  }

  /** Take text, that of a file by its name; where it may be a table, ask. */
  #take(text, name = "") {
    notice();
    const delimiter = guessDelimiter(text) ?? ENDINGS[name.toLowerCase().split(".").pop()] ?? null;
    if (!text.trim()) {
      notice("There is nothing in it. One mention a line, or a table with a header.");
    } else if (delimiter === null || (!name && looksLikeProse(text, delimiter))) {
      this.#takeList(text);
    } else {
      this.#given = { text, delimiter };
      find("header").checked = true;
      preview(this.#given);
      find("chooser").showModal();
    }
  }

  async #takeFile(file) {
    if (!file) return;
    try {
      this.#take(decode(new Uint8Array(await file.arrayBuffer())), file.name);
    } catch (error) {
      notice(error.message);
    }
  }
}

function startDropping(takeFile) {
  const mark = (on) => find("start").classList.toggle("dropping", on);
  window.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(true);
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) mark(false);
  });
  window.addEventListener("drop", (event) => {
    event.preventDefault(); // or the browser would leave the page for the file
    mark(false);
    if (find("start").hidden) notice("Forget this list first; then another can be dropped.");
    else takeFile(event.dataTransfer.files[0]);
  });
}

function parts({ text, delimiter }) {
  const rows = readTable(text, delimiter);
  const named = find("header").checked && rows.length > 1;
  const columns = rows[0].map((name, at) => (named && name.trim()) || `column ${at + 1}`);
  return { columns, rows: named ? rows.slice(1) : rows, column: guessColumn(rows) };
}

function chosen(given) {
  const { columns, rows } = parts(given);
  return { columns, rows, column: Number(new FormData(find("columns")).get("column")) };
}

/** Show the first rows; the head of each column chooses it. */
function preview(given) {
  const { columns, rows, column } = parts(given);
  const heads = columns.map((name, at) =>
    make("th", { scope: "col" }, make("label", {},
      make("input", { type: "radio", name: "column", value: at, checked: at === column }), name)));
  const first = rows.slice(0, SHOWN);
  const body = first.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, value))));
  find("preview").replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
  const words = `${some(rows.length, "row")}, the first ${SHOWN} shown.`;
  find("previewed").textContent = rows.length > SHOWN ? words : "";
}
