// The review view: the list of mentions on the left, the candidates of the current one on the right.

import * as api from "./api.js";
import { openConcept } from "./concept.js";
import { announce, count, find, make, notice, debounce, quantity } from "./dom.js";
import { List, stateOf } from "./list.js";
import { drawMap } from "./map.js";
import { review, candidatesOf } from "./review.js";
import { isExactMatch } from "./worklist.js";

const STATES = { all: "All", open: "To do", accepted: "Accepted", nil: "NIL" };
const EMPTY = { types: "", prefixes: "" };

export class Work {
  #list = new List((item) => this.go(item, { pane: "review" }));
  #sorted = [];
  #view = [];
  #current = null;
  #marked = 0;
  #all = false;
  #mapCache = { text: null, map: null };
  #listFilter = { state: "all", text: "", order: "original" };
  #filters = { ...EMPTY };
  #linkRequest = new AbortController();
  #linkSoon = debounce((item) => this.#linkFirst(item), 120);
  #mapRequest = new AbortController();
  #redrawTimer = 0;
  #currentAnswered = false;
  #stopped = false;

  /** `onError(error)` returns whether the request can be repeated. */
  constructor(onError) {
    this.onError = onError;
    const filterSoon = debounce(() => this.#filterList({ text: find("filter").value.trim().toLowerCase() }), 100);
    find("filter").addEventListener("input", filterSoon);
    find("order").addEventListener("change", () => this.#filterList({ order: find("order").value }));
    find("map-field").addEventListener("toggle", async () => {
      await this.#map();
      if (find("map-field").open) find("map-field").scrollIntoView({ block: "nearest" });
    });
    find("more").addEventListener("click", () => {
      this.#all = true;
      this.draw();
    });
    window.addEventListener("resize", debounce(() => this.#map(), 200));
    find("states").replaceChildren(...Object.entries(STATES).map(([state, label]) => make("button", {
      type: "button", "data-state": state, onclick: () => this.#filterList({ state }),
    }, label, " ", make("span", { class: "number" }))));
    for (const kind of Object.keys(EMPTY)) {
      find(kind).addEventListener("change", () => {
        this.#filters[kind] = find(kind).value;
        this.#relink();
      });
    }
  }

  /** Show a list, and link the mentions that are not linked yet. */
  open(worklist, about, limits) {
    Object.assign(this, { worklist, about, limits });
    this.#filters = { ...EMPTY };
    this.#setOptions("types", "All types", about.types);
    this.#setOptions("prefixes", "All", about.prefixes);
    find("filter").value = "";
    find("order").value = "original";
    this.#listFilter = { state: "all", text: "", order: "original" };
    this.#sort();
    this.go(worklist.items.find((item) => item.decision === null) ?? worklist.items[0]);
    this.#link();
  }

  /** Abort open requests and clear the view. */
  close() {
    this.#linkRequest.abort();
    this.#mapRequest.abort();
    clearTimeout(this.#redrawTimer);
    this.#redrawTimer = 0;
    this.#sorted = [];
    this.#view = [];
    this.#current = null;
    this.#mapCache = { text: null, map: null };
    this.worklist = null;
    this.#list.show([], null);
    for (const id of ["map", "candidates", "mention", "where", "map-text"]) find(id).replaceChildren();
  }

  #setOptions(kind, all, values) {
    find(`${kind}-field`).hidden = values.length < 2;
    const options = values.map((value) => make("option", { value }, value));
    find(kind).replaceChildren(make("option", { value: "" }, all), ...options);
  }

  // Linking

  #relink() {
    for (const item of this.worklist.items) item.candidates = null;
    this.#linkRequest.abort();
    this.#link();
    this.go(this.#current);
  }

  async #link() {
    const { signal } = (this.#linkRequest = new AbortController());
    this.#stopped = false;
    const waiting = this.worklist.items.filter((item) => item.candidates === null && !this.#tooLong(item));
    try {
      await this.#request(waiting, signal);
      if (waiting.length) announce(`${quantity(waiting.length, "mention")} linked`);
    } catch (error) {
      if (signal.aborted) return;
      if (await this.onError(error)) this.#link();
      else this.#stop(error);
    }
    this.#redrawSoon();
  }

  #stop(error) {
    this.#stopped = true;
    this.draw();
    notice(`Linking stopped: ${error.message}.`, "Continue", () => {
      notice();
      this.#link();
      this.draw();
    });
  }

  /** Link the current mention before the others; an error is shown only when its batch fails too. */
  async #linkFirst(item) {
    if (item === this.#current && item.candidates === null && !item.problem) {
      await this.#request([item], this.#linkRequest.signal).catch(() => {});
    }
  }

  #request(items, signal) {
    const { linker } = this.worklist;
    const onAnswer = (number, candidates) => {
      // Ignore answers to earlier filters, and do not replace candidates that the user may be looking at.
      if (signal.aborted || items[number].candidates !== null) return;
      items[number].candidates = candidates;
      this.#currentAnswered ||= items[number] === this.#current;
      this.#redrawSoon();
    };
    return api.link(linker, items.map(({ text }) => text), { ...this.#linkOptions(), signal, onAnswer });
  }

  #linkOptions() {
    const entries = Object.entries(this.#filters).map(([kind, value]) => [kind, value ? [value] : []]);
    return { limits: this.limits, filters: Object.fromEntries(entries) };
  }

  #tooLong(item) {
    const most = this.limits.mention_characters;
    const long = item.text.length > most && [...item.text].length > most;
    item.problem = long ? `Too long to link: more than ${count(most)} characters` : null;
    return long;
  }

  /** Redraw at most every 200 ms, and the candidates only if the current mention was answered. */
  #redrawSoon() {
    this.#redrawTimer ||= setTimeout(() => {
      this.#redrawTimer = 0;
      this.#sort();
      this.#drawList();
      if (this.#currentAnswered) this.go(this.#current);
      this.#currentAnswered = false;
    }, 200);
  }

  // View

  #filterList(changed) {
    Object.assign(this.#listFilter, changed);
    this.#sort();
    this.#updateView();
    if ("order" in changed || !this.#view.includes(this.#current)) this.#current = this.#view[0] ?? null;
    this.go(this.#current);
  }

  #sort() {
    const sign = { original: 0, descending: 1, ascending: -1 }[this.#listFilter.order];
    const { items } = this.worklist;
    this.#sorted = sign ? items.toSorted((one, other) => sign * (confidenceOf(other) - confidenceOf(one))) : items;
  }

  #updateView() {
    const { state, text } = this.#listFilter;
    this.#view = state === "all" && !text ? this.#sorted : this.#sorted.filter((item) =>
      (state === "all" || stateOf(item) === state) && item.text.toLowerCase().includes(text));
  }

  /** Make an item the current one and show it. */
  go(item, { pane } = {}) {
    if (item !== this.#current) this.#all = false;
    this.#current = item ?? null;
    this.#marked = this.#firstCandidate();
    if (pane) find("work").dataset.pane = pane;
    this.draw();
    this.#map();
    if (item) this.#linkSoon(item);
  }

  /** The accepted candidate, else the first that is not rejected. */
  #firstCandidate() {
    if (this.#current === null) return 0;
    const shown = candidatesOf(this.#current);
    const { decision, rejected } = this.#current;
    const chosen = decision?.candidate?.concept_id;
    const at = shown.findIndex(({ concept_id: id }) => (chosen ? id === chosen : !rejected.includes(id)));
    return Math.max(at, 0);
  }

  draw() {
    if (!this.worklist) return;
    this.#drawList();
    const inside = document.activeElement.closest(".candidate");
    review(this.worklist, this.#current, { marked: this.#marked, all: this.#all, stopped: this.#stopped }, {
      accept: (candidate) => this.accept(candidate),
      reject: (candidate) => this.reject(candidate),
      open: (id) => this.openConcept(id),
    });
    if (inside) find("mention").focus();
  }

  #drawList() {
    this.#updateView();
    this.#list.show(this.#view, this.#current);
    this.#drawProgress();
  }

  #drawProgress() {
    const { items } = this.worklist;
    const counts = { all: items.length, open: 0, accepted: 0, nil: 0 };
    let [linked, exact] = [0, 0];
    for (const item of items) {
      counts[stateOf(item)] += 1;
      linked += item.candidates !== null || Boolean(item.problem);
      exact += isExactMatch(item);
    }
    const decided = items.length - counts.open;
    find("decided").textContent = `${count(decided)} of ${count(items.length)} decided`;
    Object.assign(find("done"), { max: items.length || 1, value: decided });
    find("csv").classList.toggle("strong", decided === items.length);
    find("list").setAttribute("aria-busy", String(linked < items.length));
    find("linking").textContent = linked < items.length ? `${count(linked)} linked` : "";
    find("accept-exact").hidden = exact === 0;
    find("accept-exact").textContent = `Accept ${quantity(exact, "exact match", "exact matches")}`;
    for (const button of find("states").children) {
      const { state } = button.dataset;
      button.setAttribute("aria-pressed", String(this.#listFilter.state === state));
      button.lastChild.textContent = count(counts[state]);
    }
  }

  async #map() {
    this.#mapRequest.abort();
    if (!find("map-field").open || this.#current === null || find("work").hidden) return;
    const { signal } = (this.#mapRequest = new AbortController());
    const { text } = this.#current;
    try {
      if (this.#mapCache.text !== text) {
        this.#mapCache = { text, map: await api.map(this.worklist.linker, text, signal) };
      }
      drawMap(this.#mapCache.map, text, this.marked?.concept_id, (id) => this.openConcept(id));
    } catch (error) {
      if (!signal.aborted) find("map-text").textContent = `The map cannot be shown: ${error.message}.`;
    }
  }

  openConcept(id) {
    const ask = (one, signal) => api.concept(this.worklist.linker, one, signal);
    openConcept(id, ask, (concept) => this.pick(concept));
  }

  search(text, signal) {
    return api.search(this.worklist.linker, text, this.#filters, signal);
  }

  /** The concepts whose names are most similar to a text. */
  async nearest(text, signal) {
    let result = [];
    const onAnswer = (_, candidates) => { result = candidates; };
    await api.link(this.worklist.linker, [text], { ...this.#linkOptions(), signal, onAnswer });
    return result;
  }

  // Actions

  get marked() {
    return this.#current && candidatesOf(this.#current)[this.#marked];
  }

  mark(step) {
    if (this.#current === null) return;
    const last = candidatesOf(this.#current).length - 1;
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
    this.#announceCurrent();
  }

  accept(candidate = this.marked) {
    if (this.#current && candidate) this.#decide(candidate, `Accepted ${candidate.preferred_name}.`);
  }

  /** Accept any concept; if it is among the candidates, that candidate, which also has a score. */
  pick({ concept_id, preferred_name, matched_name, types }) {
    const found = this.#current?.candidates?.find((one) => one.concept_id === concept_id);
    const unknown = { score: null, confidence: null, matched_by: "hand" };
    this.accept(found ?? { concept_id, preferred_name, matched_name, types, ...unknown });
  }

  acceptNumber(number) {
    this.accept(this.#current && candidatesOf(this.#current)[number - 1] || null);
  }

  nil() {
    if (this.#current) this.#decide(null, "NIL.");
  }

  #decide(candidate, message) {
    const item = this.#current;
    const after = this.#view.slice(this.#view.indexOf(item) + 1);
    this.worklist.decide(item, candidate);
    this.#changed();
    const next = [...after, ...this.#view].find((one) => one.decision === null);
    this.go(next ?? item);
    if (next) this.#announceCurrent(message);
    else announce(`${message} All mentions are decided.`);
  }

  reject(candidate = this.marked) {
    if (!this.#current || !candidate) return;
    this.worklist.reject(this.#current, candidate);
    this.#changed();
    this.go(this.#current);
    const taken = this.#current.rejected.includes(candidate.concept_id);
    announce(`${taken ? "Rejected" : "No longer rejected:"} ${candidate.preferred_name}`);
  }

  acceptExact() {
    const number = this.worklist.acceptExact();
    this.#changed();
    this.go(this.worklist.items.find((item) => item.decision === null) ?? this.#current);
    announce(`${quantity(number, "mention")} accepted`);
  }

  undo() {
    const items = this.worklist.undo();
    if (!items.length) return announce("Nothing to undo");
    this.#changed();
    this.go(items[0]);
    this.#announceCurrent("Undone.");
  }

  #announceCurrent(message = "") {
    const { text } = this.#current;
    const best = this.marked ? `best candidate ${this.marked.preferred_name}` : "no candidates";
    announce(`${message} ${text}: ${best}`);
  }

  #changed() {
    this.onChange?.();
  }
}

const confidenceOf = ({ candidates }) => candidates?.[0]?.confidence ?? candidates?.[0]?.score ?? -1;
