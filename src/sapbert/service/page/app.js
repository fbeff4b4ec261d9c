// Where the page begins: which view is shown, what is kept, which key does what.

import * as api from "./api.js";
import { announce, find, make, notice, settled, some } from "./dom.js";
import { csvOf, save, sssomOf } from "./downloads.js";
import { Intake } from "./intake.js";
import { Picker } from "./picker.js";
import { Work } from "./work.js";
import { forget, KEPT, recallWorklist, Worklist } from "./worklist.js";

const DOWNLOAD = "download your decisions before you close the page.";
const NO_ROOM = `This list is too large for the browser to keep: ${DOWNLOAD}`;
const OTHER_TAB = `Another tab has begun a list of its own, so this one is no longer kept: ${DOWNLOAD}`;

let about = null;
const work = new Work(whenRefused);

const keep = settled(keepNow, 250);
work.onChange = keep;

function keepNow() {
  if (work.worklist && !work.worklist.keepDecisions()) notice(work.kept ? OTHER_TAB : NO_ROOM);
}

/** Ask for a key where one is wanted; true once there is one. */
async function whenRefused(error) {
  if (error.status !== 401) return false;
  find("unknown").hidden = !api.hasKey();
  find("asking").showModal();
  await new Promise((resolve) => { find("asking").addEventListener("close", resolve, { once: true }); });
  api.useKey(find("key").value);
  find("key").value = "";
  return true;
}

async function knowService() {
  for (;;) {
    try {
      about = await api.version();
      return;
    } catch (error) {
      if (!await whenRefused(error)) throw error;
    }
  }
}

// Views

function showStart() {
  work.close();
  find("start").hidden = false;
  find("work").hidden = true;
  document.title = "sapbert";
  const named = find("linker").value;
  const linker = about.linkers.find(({ name }) => name === named) ?? about.linkers[0];
  find("linker-field").hidden = about.linkers.length < 2;
  find("linker").replaceChildren(...about.linkers.map(({ name, title }) =>
    make("option", { value: name, selected: name === linker.name }, title)));
  tellLinker(linker);
  // Where a keyboard would cover half the screen, it comes when it is wanted.
  if (matchMedia("(hover: hover)").matches) find("text").focus();
}

function tellLinker({ title, names, concepts }) {
  find("about").textContent = title;
  find("size").textContent = `${some(names, "name")} of ${some(concepts, "concept")}`;
}

function showWork(worklist) {
  const linker = about.linkers.find(({ name }) => name === worklist.linker) ?? about.linkers[0];
  if (linker.name !== worklist.linker) {
    notice(`What this list was compared with is no longer served; ${linker.title} is.`);
    worklist.linker = linker.name;
  }
  find("start").hidden = true;
  find("work").hidden = false;
  tellLinker(linker);
  document.title = `${some(worklist.items.length, "mention")} \u00b7 sapbert`;
  work.open(worklist, linker, about.limits);
  find("mention").focus();
}

function begin(given) {
  const worklist = new Worklist({ ...given, id: String(Math.random()), linker: find("linker").value });
  if (!worklist.items.length) return notice("That column is empty. Choose another.");
  work.kept = worklist.keepList();
  if (!work.kept) notice(NO_ROOM);
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
  // A button that has the focus keeps what buttons do.
  if ((key === "Enter" || key === " ") && target.closest("button, summary, input, [role=button]")) return;
  if (event.altKey || event.metaKey || event.ctrlKey) {
    if (key === "z" && !event.altKey && !event.shiftKey) ACTS.undo();
    return;
  }
  if (/^[1-9]$/.test(key)) work.acceptNumber(Number(key));
  else if (Object.hasOwn(KEYS, key)) KEYS[key]();
  else return;
  event.preventDefault();
}

// Wiring

function wire() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const { act, close } = event.target.closest("[data-act], [data-close]")?.dataset ?? {};
    if (act) ACTS[act]();
    if (close) find(close).close();
    const { left } = event.target.getBoundingClientRect();
    if (event.target.matches("dialog.sheet") && event.clientX < left) event.target.close(); // beside it
    // A button that was clicked with a mouse would take the next Enter for itself.
    if (event.detail > 0 && event.target.closest(".work button")) document.activeElement.blur();
  });
  find("to-list").addEventListener("click", () => { find("work").dataset.pane = "list"; });
  find("plain").addEventListener("click", () => work.acceptPlain());
  find("csv").addEventListener("click", () => save("decisions.csv", csvOf(work.worklist), "text/csv"));
  find("sssom").addEventListener("click", () => {
    const text = sssomOf(work.worklist, { ...work.about, sapbert: about.sapbert });
    save("decisions.sssom.tsv", text, "text/tab-separated-values");
  });
  wireForgetting();
  find("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    find("asking").close();
  });
  find("linker").addEventListener("change", (event) => {
    tellLinker(about.linkers.find(({ name }) => name === event.target.value));
  });
  new Intake(begin);
  new Picker((text, signal) => work.search(text, signal), (concept) => work.pick(concept));
  window.addEventListener("pagehide", () => { if (work.kept) work.worklist?.keepDecisions(); });
  window.addEventListener("storage", onOtherTab);
}

function wireForgetting() {
  find("forget").addEventListener("click", () => {
    const { items, decided } = work.worklist;
    const what = `${some(items.length, "mention")} and ${some(decided, "decision")}`;
    find("forgotten").textContent = `${what} will be erased from this browser. What you downloaded stays.`;
    find("forgetting").showModal();
  });
  find("forget-now").addEventListener("click", () => {
    find("forgetting").close();
    forget();
    showStart();
    notice();
    announce("Forgotten");
  });
}

/** The same list may be open in another tab: what is decided, or forgotten, there holds here. */
function onOtherTab({ key, newValue }) {
  if (!work.worklist || !KEPT.includes(key)) return;
  if (key === KEPT[0]) {
    if (newValue === null) showStart();
    else keepNow(); // which tells that it cannot
  } else if (newValue !== null) {
    work.worklist.recall();
    work.draw();
  }
}

async function start() {
  wire();
  try {
    await knowService();
  } catch (error) {
    notice(`The service does not answer: ${error.message}.`, "Try again", () => location.reload());
    return;
  }
  const worklist = recallWorklist();
  if (worklist?.items.length) {
    work.kept = true;
    showWork(worklist);
  } else showStart();
}

start();
