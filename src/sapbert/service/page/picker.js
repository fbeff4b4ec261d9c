// Search as you type: any concept that the filters leave, by the beginning of a name or by identifier.

import { announce, find, make, settled, some } from "./dom.js";

export class Picker {
  #field = find("search");
  #box = find("results");
  #results = [];
  #at = -1;
  #asking = new AbortController();

  /** `ask(text, signal)` finds concepts, `pick(concept)` takes one. */
  constructor(ask, pick) {
    Object.assign(this, { ask, pick });
    const look = settled(() => this.#look(), 120);
    this.#field.addEventListener("input", () => {
      this.#close();
      look();
    });
    this.#field.addEventListener("focus", () => {
      this.#field.closest(".other").scrollIntoView({ block: "nearest" });
    });
    this.#field.addEventListener("blur", () => this.#close());
    this.#field.addEventListener("keydown", (event) => this.#onKey(event));
  }

  async #look() {
    const text = this.#field.value.trim();
    if (!text) return;
    const { signal } = (this.#asking = new AbortController());
    try {
      this.#show(await this.ask(text, signal));
    } catch {
      this.#close(); // it was given up, or the next letter asks again
    }
  }

  #show(found) {
    this.#results = found;
    const rows = found.map((one, number) => make("li", {
      role: "option", id: `result-${number}`, "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(), // the field would lose the focus and close the list
      onclick: () => this.#take(number),
    },
      make("span", {}, one.matched_name), " ", make("code", {}, one.concept_id),
      one.matched_name === one.preferred_name ? null : make("small", {}, one.preferred_name)));
    const none = make("li", { class: "quiet" }, "No name begins so.");
    this.#box.replaceChildren(...(rows.length ? rows : [none]));
    this.#box.hidden = false;
    this.#field.setAttribute("aria-expanded", "true");
    announce(some(found.length, "concept"));
    if (found.length) this.#mark(0);
  }

  #mark(number) {
    this.#at = number;
    [...this.#box.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === number)));
    this.#field.setAttribute("aria-activedescendant", `result-${number}`);
    this.#box.children[number].scrollIntoView({ block: "nearest" });
  }

  #take(number) {
    const chosen = this.#results[number];
    if (!chosen) return;
    this.#field.value = "";
    this.#field.blur();
    this.pick(chosen);
  }

  #close() {
    this.#asking.abort();
    this.#results = [];
    this.#at = -1;
    this.#box.hidden = true;
    this.#field.setAttribute("aria-expanded", "false");
    this.#field.removeAttribute("aria-activedescendant");
  }

  #onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { length } = this.#results;
    if (step && length) this.#mark((this.#at + step + length) % length);
    else if (event.key === "Enter") this.#take(this.#at);
    else if (event.key === "Escape") this.#field.blur();
    else return;
    event.preventDefault();
  }
}
