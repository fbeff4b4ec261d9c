// The second view: mentions at the left, one of them with its candidates at the right, decided by keyboard.

import * as api from "./api.js";
import { openConcept } from "./concept.js";
import { announce, count, find, make, notice, settled, some } from "./dom.js";
import { List, stateOf } from "./list.js";
import { drawMap } from "./map.js";
import { review, shownOf } from "./review.js";
import { isPlain } from "./worklist.js";

const STATES = { all: "All", open: "To do", accepted: "Accepted", nil: "NIL" };
const EMPTY = { types: "", prefixes: "" };

export class Work {
  #list = new List((item) => this.go(item, { pane: "review" }));
  #sorted = [];
  #view = [];
  #current = null;
  #marked = 0;
  #all = false;
  #mapped = { text: null, map: null };
  #sieve = { state: "all", text: "", order: "given" };
  #filters = { ...EMPTY };
  #linking = new AbortController();
  #hurry = settled((item) => this.#linkFirst(item), 120);
  #mapping = new AbortController();
  #later = 0;
  #answered = false;

  /** `onRefusal(error)` returns whether the question may be asked again. */
  constructor(onRefusal) {
    this.onRefusal = onRefusal;
    const look = settled(() => this.#sift({ text: find("filter").value.trim().toLowerCase() }), 100);
    find("filter").addEventListener("input", look);
    find("order").addEventListener("change", () => this.#sift({ order: find("order").value }));
    find("map-field").addEventListener("toggle", async () => {
      await this.#map();
      if (find("map-field").open) find("map-field").scrollIntoView({ block: "nearest" });
    });
    find("more").addEventListener("click", () => {
      this.#all = true;
      this.draw();
    });
    window.addEventListener("resize", settled(() => this.#map(), 200));
    find("states").replaceChildren(...Object.entries(STATES).map(([state, words]) => make("button", {
      type: "button", "data-state": state, onclick: () => this.#sift({ state }),
    }, words, " ", make("span", { class: "number" }))));
    for (const kind of Object.keys(EMPTY)) {
      find(kind).addEventListener("change", () => {
        this.#filters[kind] = find(kind).value;
        this.#relink();
      });
    }
  }

  /** Show a list, and link what is not linked. */
  open(worklist, about, limits) {
    Object.assign(this, { worklist, about, limits });
    this.#filters = { ...EMPTY };
    this.#offer("types", "All types", about.types);
    this.#offer("prefixes", "All", about.prefixes);
    find("filter").value = "";
    find("order").value = "given";
    this.#sieve = { state: "all", text: "", order: "given" };
    this.#sort();
    this.go(worklist.items.find((item) => item.decision === null) ?? worklist.items[0]);
    this.#link();
  }

  /** Stop all that goes on; what was shown is gone. */
  close() {
    this.#linking.abort();
    this.#mapping.abort();
    clearTimeout(this.#later);
    this.#later = 0;
    this.#sorted = [];
    this.#view = [];
    this.#current = null;
    this.#mapped = { text: null, map: null };
    this.worklist = null;
    this.#list.show([], null);
    for (const id of ["map", "candidates", "mention", "where", "told"]) find(id).replaceChildren();
  }

  #offer(kind, all, values) {
    find(`${kind}-field`).hidden = values.length < 2;
    const options = values.map((value) => make("option", { value }, value));
    find(kind).replaceChildren(make("option", { value: "" }, all), ...options);
  }

  // Linking

  #relink() {
    for (const item of this.worklist.items) item.candidates = null;
    this.#linking.abort();
    this.#link();
    this.go(this.#current);
  }

  async #link() {
    const { signal } = (this.#linking = new AbortController());
    const waiting = this.worklist.items.filter((item) => item.candidates === null && !this.#tooLong(item));
    try {
      await this.#ask(waiting, signal);
      if (waiting.length) announce(`${some(waiting.length, "mention")} linked`);
    } catch (error) {
      if (signal.aborted) return;
      if (await this.onRefusal(error)) this.#link();
      else notice(`Linking stopped: ${error.message}.`, "Go on", () => { notice(); this.#link(); });
    }
    this.#soon();
  }

  /** Link what somebody looks at before its turn comes; if that fails, it is told when its turn comes. */
  async #linkFirst(item) {
    if (item === this.#current && item.candidates === null && !item.problem) {
      await this.#ask([item], this.#linking.signal).catch(() => {});
    }
  }

  #ask(items, signal) {
    const { limits, worklist: { linker } } = this;
    const wanted = Object.entries(this.#filters).map(([kind, value]) => [kind, value ? [value] : []]);
    const found = (number, candidates) => {
      // What was asked with other filters is too late; what was answered may be under somebody's hands.
      if (signal.aborted || items[number].candidates !== null) return;
      items[number].candidates = candidates;
      this.#answered ||= items[number] === this.#current;
      this.#soon();
    };
    const filters = Object.fromEntries(wanted);
    return api.link(linker, items.map(({ text }) => text), { limits, filters, signal, found });
  }

  #tooLong(item) {
    const most = this.limits.mention_characters;
    const long = item.text.length > most && [...item.text].length > most;
    item.problem = long ? `too long to be linked: more than ${count(most)} characters` : null;
    return long;
  }

  /** Draw again, but not for each of thousands of answers, and not what somebody may be using. */
  #soon() {
    this.#later ||= setTimeout(() => {
      this.#later = 0;
      this.#sort();
      this.#drawList();
      if (this.#answered) this.go(this.#current);
      this.#answered = false;
    }, 200);
  }

  // What is shown

  #sift(changed) {
    Object.assign(this.#sieve, changed);
    this.#sort();
    this.#look();
    if (!this.#view.includes(this.#current)) this.#current = this.#view[0] ?? null;
    this.go(this.#current);
  }

  #sort() {
    const way = { given: 0, sure: 1, unsure: -1 }[this.#sieve.order];
    const { items } = this.worklist;
    this.#sorted = way ? items.toSorted((one, other) => way * (sureOf(other) - sureOf(one))) : items;
  }

  #look() {
    const { state, text } = this.#sieve;
    this.#view = state === "all" && !text ? this.#sorted : this.#sorted.filter((item) =>
      (state === "all" || stateOf(item) === state) && item.text.toLowerCase().includes(text));
  }

  /** Make an item the current one. */
  go(item, { pane } = {}) {
    if (item !== this.#current) this.#all = false;
    this.#current = item ?? null;
    this.#marked = this.#firstOpen();
    if (pane) find("work").dataset.pane = pane;
    this.draw();
    this.#map();
    if (item) this.#hurry(item);
  }

  /** The accepted candidate, else the first that is not rejected. */
  #firstOpen() {
    if (this.#current === null) return 0;
    const shown = shownOf(this.#current);
    const { decision, rejected } = this.#current;
    const chosen = decision?.candidate?.concept_id;
    const at = shown.findIndex(({ concept_id: id }) => (chosen ? id === chosen : !rejected.includes(id)));
    return Math.max(at, 0);
  }

  draw() {
    if (!this.worklist) return;
    this.#drawList();
    const inside = document.activeElement.closest(".candidate");
    review(this.worklist, this.#current, { marked: this.#marked, all: this.#all }, {
      accept: (candidate) => this.accept(candidate),
      reject: (candidate) => this.reject(candidate),
      open: (id) => this.openConcept(id),
    });
    if (inside) find("mention").focus();
  }

  #drawList() {
    this.#look();
    this.#list.show(this.#view, this.#current);
    this.#drawProgress();
  }

  #drawProgress() {
    const { items } = this.worklist;
    const counts = { all: items.length, open: 0, accepted: 0, nil: 0 };
    let [linked, plain] = [0, 0];
    for (const item of items) {
      counts[stateOf(item)] += 1;
      linked += item.candidates !== null || Boolean(item.problem);
      plain += isPlain(item);
    }
    const decided = items.length - counts.open;
    find("decided").textContent = `${count(decided)} of ${count(items.length)} decided`;
    Object.assign(find("done"), { max: items.length || 1, value: decided });
    find("csv").classList.toggle("strong", decided === items.length);
    find("list").setAttribute("aria-busy", String(linked < items.length));
    find("linking").textContent = linked < items.length ? `linked ${count(linked)}` : "";
    find("plain").hidden = plain === 0;
    find("plain").textContent = `Accept ${some(plain, "exact match", "exact matches")}`;
    for (const button of find("states").children) {
      const { state } = button.dataset;
      button.setAttribute("aria-pressed", String(this.#sieve.state === state));
      button.lastChild.textContent = count(counts[state]);
    }
  }

  async #map() {
    this.#mapping.abort();
    if (!find("map-field").open || this.#current === null || find("work").hidden) return;
    const { signal } = (this.#mapping = new AbortController());
    const { text } = this.#current;
    try {
      if (this.#mapped.text !== text) {
        this.#mapped = { text, map: await api.map(this.worklist.linker, text, signal) };
      }
      drawMap(this.#mapped.map, text, this.marked?.concept_id, (id) => this.openConcept(id));
    } catch (error) {
      if (!signal.aborted) find("told").textContent = `No map: ${error.message}.`;
    }
  }

  openConcept(id) {
    const ask = (one, signal) => api.concept(this.worklist.linker, one, signal);
    openConcept(id, ask, (concept) => this.pick(concept));
  }

  search(text, signal) {
    return api.search(this.worklist.linker, text, this.#filters, signal);
  }

  // What is done

  get marked() {
    return this.#current && shownOf(this.#current)[this.#marked];
  }

  mark(step) {
    if (this.#current === null) return;
    const last = shownOf(this.#current).length - 1;
    this.#marked = Math.max(0, Math.min(last, this.#marked + step));
    this.draw();
    this.#map();
    if (this.marked) announce(`${this.marked.preferred_name}, ${this.marked.concept_id}`);
  }

  step(by) {
    const at = this.#view.indexOf(this.#current) + by;
    const item = this.#view[at];
    if (!item) return;
    this.go(item);
    this.#tell();
  }

  accept(candidate = this.marked) {
    if (this.#current && candidate) this.#decide(candidate, `Accepted ${candidate.preferred_name}.`);
  }

  /** Accept any concept; if it was found, as it was found, since that says more: a score, and how. */
  pick({ concept_id, preferred_name, matched_name, types }) {
    const found = this.#current?.candidates?.find((one) => one.concept_id === concept_id);
    const unknown = { score: null, confidence: null, matched_by: "hand" };
    this.accept(found ?? { concept_id, preferred_name, matched_name, types, ...unknown });
  }

  acceptNumber(number) {
    this.accept(this.#current && shownOf(this.#current)[number - 1] || null);
  }

  nil() {
    if (this.#current) this.#decide(null, "NIL.");
  }

  #decide(candidate, words) {
    const item = this.#current;
    const after = this.#view.slice(this.#view.indexOf(item) + 1);
    this.worklist.decide(item, candidate);
    this.#changed();
    const next = [...after, ...this.#view].find((one) => one.decision === null);
    this.go(next ?? item);
    if (next) this.#tell(words);
    else announce(`${words} All mentions are decided.`);
  }

  reject(candidate = this.marked) {
    if (!this.#current || !candidate) return;
    this.worklist.reject(this.#current, candidate);
    this.#changed();
    this.go(this.#current);
    const taken = this.#current.rejected.includes(candidate.concept_id);
    announce(`${taken ? "Rejected" : "No longer rejected:"} ${candidate.preferred_name}`);
  }

  acceptPlain() {
    const number = this.worklist.acceptPlain();
    this.#changed();
    this.go(this.worklist.items.find((item) => item.decision === null) ?? this.#current);
    announce(`${some(number, "mention")} accepted`);
  }

  undo() {
    const items = this.worklist.undo();
    if (!items.length) return announce("Nothing to undo");
    this.#changed();
    this.go(items[0]);
    this.#tell("Undone.");
  }

  #tell(words = "") {
    const { text } = this.#current;
    const best = this.marked ? `best candidate ${this.marked.preferred_name}` : "no candidate";
    announce(`${words} ${text}: ${best}`);
  }

  #changed() {
    this.onChange?.();
  }
}

const sureOf = ({ candidates }) => candidates?.[0]?.confidence ?? candidates?.[0]?.score ?? -1;
