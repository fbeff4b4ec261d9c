// Search as you type: concepts that match the filters, by the start of a name or an identifier.

import { announce, find, make, debounce, quantity } from "./dom.js";

export class Picker {
  #field = find("search");
  #box = find("results");
  #results = [];
  #selected = -1;
  #pending = new AbortController();

  /** `ask(text, signal)` searches concepts, `pick(concept)` is called with the selected one. */
  constructor(ask, pick) {
    Object.assign(this, { ask, pick });
    const searchSoon = debounce(() => this.#search(), 120);
    this.#field.addEventListener("input", () => {
      this.#close();
      searchSoon();
    });
    this.#field.addEventListener("focus", () => {
      this.#field.closest(".other").scrollIntoView({ block: "nearest" });
    });
    this.#field.addEventListener("blur", () => this.#close());
    this.#field.addEventListener("keydown", (event) => this.#onKey(event));
  }

  async #search() {
    const text = this.#field.value.trim();
    if (!text) return;
    const { signal } = (this.#pending = new AbortController());
    try {
      this.#show(await this.ask(text, signal));
    } catch {
      this.#close(); // aborted, or the next letter repeats the search
    }
  }

  #show(results) {
    this.#results = results;
    const rows = results.map((one, number) => make("li", {
      role: "option", id: `result-${number}`, "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(), // keep the focus in the field, which else closes the list
      onclick: () => this.#pick(number),
    },
      make("span", {}, one.matched_name), " ", make("code", {}, one.concept_id),
      one.matched_name === one.preferred_name ? null : make("small", {}, one.preferred_name)));
    const none = make("li", { class: "quiet" }, "No name starts with this text.");
    this.#box.replaceChildren(...(rows.length ? rows : [none]));
    this.#box.hidden = false;
    this.#field.setAttribute("aria-expanded", "true");
    announce(quantity(results.length, "concept"));
    if (results.length) this.#select(0);
  }

  #select(number) {
    this.#selected = number;
    [...this.#box.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === number)));
    this.#field.setAttribute("aria-activedescendant", `result-${number}`);
    this.#box.children[number].scrollIntoView({ block: "nearest" });
  }

  #pick(number) {
    const chosen = this.#results[number];
    if (!chosen) return;
    this.#field.value = "";
    this.#field.blur();
    this.pick(chosen);
  }

  #close() {
    this.#pending.abort();
    this.#results = [];
    this.#selected = -1;
    this.#box.hidden = true;
    this.#field.setAttribute("aria-expanded", "false");
    this.#field.removeAttribute("aria-activedescendant");
  }

  #onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { length } = this.#results;
    if (step && length) this.#select((this.#selected + step + length) % length);
    else if (event.key === "Enter") this.#pick(this.#selected);
    else if (event.key === "Escape") this.#field.blur();
    else return;
    event.preventDefault();
  }
}
