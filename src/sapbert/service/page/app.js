// Entry point of the page: views, storage and keyboard shortcuts.

import * as api from "./api.js";
import { announce, find, make, notice, debounce, quantity } from "./dom.js";
import { csvOf, save, sssomOf } from "./downloads.js";
import { Intake } from "./intake.js";
import { Picker } from "./picker.js";
import { Work } from "./work.js";
import { forget, loadAuthor, loadWorklist, saveAuthor, STORAGE_KEYS, Worklist } from "./worklist.js";

const DOWNLOAD = "download your decisions before you close the page.";
const TOO_LARGE = `This list is too large to be stored in the browser: ${DOWNLOAD}`;
const OTHER_TAB = `Another tab has started a new list, so this one is no longer stored: ${DOWNLOAD}`;

let about = null;
const work = new Work(askForKey);

work.onChange = debounce(saveNow, 250);

function saveNow() {
  if (work.worklist && !work.worklist.saveDecisions()) notice(work.stored ? OTHER_TAB : TOO_LARGE);
}

/** Ask for an API key if the error is 401; returns whether the request can be repeated. */
async function askForKey(error) {
  if (error.status !== 401) return false;
  find("key-error").hidden = !api.hasKey();
  find("key-dialog").showModal();
  await new Promise((resolve) => { find("key-dialog").addEventListener("close", resolve, { once: true }); });
  api.useKey(find("key").value);
  find("key").value = "";
  return true;
}

async function loadVersion() {
  for (;;) {
    try {
      about = await api.version();
      return;
    } catch (error) {
      if (!await askForKey(error)) throw error;
    }
  }
}

// Views

function showStart() {
  work.close();
  find("start").hidden = false;
  find("work").hidden = true;
  document.title = "Link mentions \u00b7 sapbert";
  const named = find("linker").value;
  const linker = about.linkers.find(({ name }) => name === named) ?? about.linkers[0];
  find("linker-field").hidden = about.linkers.length < 2;
  find("linker").replaceChildren(...about.linkers.map(({ name, title }) =>
    make("option", { value: name, selected: name === linker.name }, title)));
  showLinker(linker);
  // Not on touch screens, where the focus would open the keyboard.
  if (matchMedia("(hover: hover)").matches) find("text").focus();
}

function showLinker({ title, names, concepts }) {
  find("about").textContent = title;
  find("size").textContent = `${quantity(names, "name")} of ${quantity(concepts, "concept")}`;
}

function showWork(worklist) {
  const linker = about.linkers.find(({ name }) => name === worklist.linker) ?? about.linkers[0];
  if (linker.name !== worklist.linker) {
    notice(`The linker of this list is no longer available. Using ${linker.title}.`);
    worklist.linker = linker.name;
  }
  find("start").hidden = true;
  find("work").hidden = false;
  showLinker(linker);
  document.title = `${quantity(worklist.items.length, "mention")} \u00b7 sapbert`;
  work.open(worklist, linker, about.limits);
  find("mention").focus();
}

function begin(input) {
  const worklist = new Worklist({ ...input, id: String(Math.random()), linker: find("linker").value });
  if (!worklist.items.length) return notice("This column is empty. Choose another.");
  work.stored = worklist.saveList();
  if (!work.stored) notice(TOO_LARGE);
  find("text").value = "";
  showWork(worklist);
}

// Keys

const ACTS = {
  previous: () => work.step(-1),
  next: () => work.step(1),
  accept: () => work.accept(),
  reject: () => work.reject(),
  nil: () => work.nil(),
  undo: () => work.undo(),
  open: () => work.marked && work.openConcept(work.marked.concept_id),
};
const KEYS = {
  k: ACTS.previous, j: ACTS.next, Enter: ACTS.accept, x: ACTS.reject, n: ACTS.nil, u: ACTS.undo, i: ACTS.open,
  ArrowUp: () => work.mark(-1), ArrowDown: () => work.mark(1),
  "/": () => find("search").focus(), m: () => { find("map-field").open = !find("map-field").open; },
};

function onKey(event) {
  const { key, target } = event;
  if (find("work").hidden || !find("keys").checked || document.querySelector("dialog[open]")) return;
  if (target.closest("input, textarea, select") && target.type !== "checkbox") return;
  // Enter and space activate the focused button.
  if ((key === "Enter" || key === " ") && target.closest("button, summary, input, [role=button]")) return;
  if (event.altKey || event.metaKey || event.ctrlKey) {
    if (key === "z" && !event.altKey && !event.shiftKey) ACTS.undo();
    return;
  }
  // A key that is held down moves, but decides nothing.
  if (event.repeat && !["j", "k", "ArrowUp", "ArrowDown"].includes(key)) return event.preventDefault();
  const inList = target.id === "list" && { ArrowUp: ACTS.previous, ArrowDown: ACTS.next }[key];
  if (inList) inList();
  else if (/^[1-9]$/.test(key)) work.acceptNumber(Number(key));
  else if (Object.hasOwn(KEYS, key)) KEYS[key]();
  else return;
  event.preventDefault();
}

// Event listeners

function wire() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const { act, close } = event.target.closest("[data-act], [data-close]")?.dataset ?? {};
    if (act) ACTS[act]();
    if (close) find(close).close();
    const { left } = event.target.getBoundingClientRect();
    if (event.target.matches("dialog.sheet") && event.clientX < left) event.target.close(); // click outside
    // A button clicked with the mouse keeps the focus and would handle the next Enter.
    if (event.detail > 0 && event.target.closest(".work button")) document.activeElement.blur();
  });
  find("to-list").addEventListener("click", () => { find("work").dataset.pane = "list"; });
  find("accept-exact").addEventListener("click", () => work.acceptExact());
  find("csv").addEventListener("click", () => save("decisions.csv", csvOf(work.worklist), "text/csv"));
  find("sssom").addEventListener("click", () => {
    if (loadAuthor() === null) find("author-dialog").showModal();
    else saveSssom(loadAuthor());
  });
  find("author-form").addEventListener("submit", (event) => {
    event.preventDefault();
    find("author-dialog").close();
    const author = find("author").value.trim();
    saveAuthor(author);
    saveSssom(author);
  });
  wireForgetDialog();
  find("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    find("key-dialog").close();
  });
  find("linker").addEventListener("change", (event) => {
    showLinker(about.linkers.find(({ name }) => name === event.target.value));
  });
  new Intake(begin);
  new Picker({
    search: (text, signal) => work.search(text, signal),
    nearest: (text, signal) => work.nearest(text, signal),
    pick: (concept) => work.pick(concept),
  });
  window.addEventListener("pagehide", () => { if (work.stored) work.worklist?.saveDecisions(); });
  window.addEventListener("storage", onOtherTab);
}

function saveSssom(author) {
  const text = sssomOf(work.worklist, { ...work.about, sapbert: about.sapbert }, author);
  save("decisions.sssom.tsv", text, "text/tab-separated-values");
}

function wireForgetDialog() {
  find("forget").addEventListener("click", () => {
    const { items, decided } = work.worklist;
    const what = `${quantity(items.length, "mention")} and ${quantity(decided, "decision")}`;
    find("forget-text").textContent = `${what} will be erased from this browser. Downloaded files are not affected.`;
    find("forget-dialog").showModal();
  });
  find("forget-now").addEventListener("click", () => {
    find("forget-dialog").close();
    forget();
    showStart();
    notice();
    announce("Forgotten");
  });
}

/** Follow changes in other tabs with the same list: decisions, and forgetting the list. */
function onOtherTab({ key, newValue }) {
  if (!work.worklist || !STORAGE_KEYS.includes(key)) return;
  if (key === STORAGE_KEYS[0]) {
    if (newValue === null) showStart();
    else saveNow(); // shows that this list can no longer be stored
  } else if (newValue !== null) {
    work.worklist.loadDecisions();
    work.draw();
  }
}

async function start() {
  wire();
  try {
    await loadVersion();
  } catch (error) {
    notice(`The service does not answer: ${error.message}.`, "Try again", () => location.reload());
    return;
  }
  const worklist = loadWorklist();
  if (worklist?.items.length) {
    work.stored = true;
    showWork(worklist);
  } else showStart();
}

start();
