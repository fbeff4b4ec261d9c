// The list of mentions. Only visible rows are in the document, so a list of 20,000 scrolls smoothly.

import { count, find, make } from "./dom.js";

const ROW = 56; // pixels, as in style.css
const EXTRA_ROWS = 8;
const STATE_SYMBOLS = { open: "", accepted: "\u2713", nil: "\u2205" };
const STATE_NAMES = { open: "to do", accepted: "accepted", nil: "NIL" };

export function stateOf({ decision }) {
  if (decision === null) return "open";
  return decision.candidate ? "accepted" : "nil";
}

export class List {
  #items = [];
  #current = null;
  #frameRequest = 0;

  constructor(choose) {
    this.frame = find("list");
    this.space = find("space");
    this.frame.addEventListener("scroll", () => this.draw(), { passive: true });
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest("[data-at]");
      if (row) choose(this.#items[Number(row.dataset.at)]);
    });
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  /** Show items and mark the current one. */
  show(items, current) {
    const moved = current !== this.#current;
    this.#items = items;
    this.#current = current;
    this.space.style.height = `${items.length * ROW}px`;
    if (moved) this.#reveal();
    this.draw();
  }

  /** Scroll until the current row and one row on either side are visible. */
  #reveal() {
    const at = this.#items.indexOf(this.#current);
    if (at < 0) return;
    const { scrollTop, clientHeight } = this.frame;
    if (at * ROW < scrollTop + ROW) this.frame.scrollTop = (at - 1) * ROW;
    else if ((at + 2) * ROW > scrollTop + clientHeight) this.frame.scrollTop = (at + 2) * ROW - clientHeight;
  }

  /** Draw once before the next frame, even if called several times. */
  draw() {
    cancelAnimationFrame(this.#frameRequest);
    this.#frameRequest = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    const { scrollTop, clientHeight } = this.frame;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - EXTRA_ROWS);
    const last = Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / ROW) + EXTRA_ROWS);
    const rows = this.#items.slice(first, last).map((item, offset) => this.#row(item, first + offset));
    this.space.replaceChildren(...rows);
    const current = this.space.querySelector("[aria-selected=true]");
    if (current) this.frame.setAttribute("aria-activedescendant", current.id);
    else this.frame.removeAttribute("aria-activedescendant");
  }

  #row(item, at) {
    const state = stateOf(item);
    const row = make("div", {
      role: "option", id: `row-${at}`, "data-at": at, class: `row ${state}`,
      "aria-selected": String(item === this.#current),
      "aria-posinset": at + 1, "aria-setsize": this.#items.length,
    },
      make("span", { class: "state", role: "img", "aria-label": STATE_NAMES[state] }, STATE_SYMBOLS[state]),
      make("span", { class: "mention" }, item.text),
      item.rows.length > 1 ? make("span", { class: "times" }, `\u00d7${count(item.rows.length)}`) : null,
      make("span", { class: "best" }, bestOf(item)));
    row.style.top = `${at * ROW}px`;
    return row;
  }
}

function bestOf({ decision, candidates, rejected, problem }) {
  if (decision !== null) return decision.candidate?.preferred_name ?? "no concept (NIL)";
  if (problem) return problem;
  if (candidates === null) return "\u2026";
  const best = candidates.find(({ concept_id }) => !rejected.includes(concept_id));
  return best?.preferred_name ?? (candidates.length ? "all rejected" : "no candidates");
}
