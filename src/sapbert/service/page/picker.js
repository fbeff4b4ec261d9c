// Search as you type: concepts that match the filters, by the start of a name or an identifier. If there is none,
// or with Enter, the concepts with the most similar names.
//
// Enter accepts only what the user selected, a name or identifier that equals the text, or a single result:
// the alphabetically first name that starts with the text is often a synonym of something else.

import { announce, find, make, debounce, quantity } from "./dom.js";

export class Picker {
  #field = find("search");
  #box = find("results");
  #results = [];
  #selected = -1;
  #pending = new AbortController();

  /** `search(text, signal)` and `nearest(text, signal)` return concepts; `pick(concept)` gets the selected one. */
  constructor({ search, nearest, pick }) {
    Object.assign(this, { search, nearest, pick });
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

  async #search({ similar = false } = {}) {
    const text = this.#field.value.trim();
    if (!text) return;
    this.#pending.abort();
    const { signal } = (this.#pending = new AbortController());
    try {
      const found = similar ? [] : await this.search(text, signal);
      this.#show(found.length ? found : await this.nearest(text, signal), text);
    } catch {
      this.#close(); // aborted, or the next letter repeats the search
    }
  }

  #show(results, text) {
    this.#results = results;
    this.#selected = -1;
    this.#field.removeAttribute("aria-activedescendant");
    const rows = results.map((one, number) => make("li", {
      role: "option", id: `result-${number}`, "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(), // keep the focus in the field, which else closes the list
      onclick: () => this.#pick(number),
    },
      make("span", {}, one.matched_name), " ", make("code", {}, one.concept_id),
      one.matched_name === one.preferred_name ? null : make("small", {}, one.preferred_name)));
    const none = make("li", { class: "quiet" }, "No concept is similar to this text.");
    this.#box.replaceChildren(...(rows.length ? rows : [none]));
    this.#box.hidden = false;
    this.#field.setAttribute("aria-expanded", "true");
    announce(quantity(results.length, "concept"));
    const equal = results.findIndex((one) => [one.matched_name, one.concept_id, one.concept_id.split(":")[1]]
      .some((name) => name.toLowerCase() === text.toLowerCase()));
    if (equal >= 0) this.#select(equal);
    else if (results.length === 1) this.#select(0);
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
    if (step && length) this.#select(this.#selected < 0 && step < 0 ? length - 1 : (this.#selected + step + length) % length);
    else if (event.key === "Enter") {
      if (event.repeat) return event.preventDefault();
      if (this.#selected >= 0) this.#pick(this.#selected);
      else this.#search({ similar: true });
    }
    else if (event.key === "Escape") this.#field.blur();
    else return;
    event.preventDefault();
  }
}
