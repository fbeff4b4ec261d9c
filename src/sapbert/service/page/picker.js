// Search as you type: any concept of the vocabulary, by the beginning of a name or by identifier.

import { announce, find, make, settled, some } from "./dom.js";

/** Wire the field; `ask(text, signal)` finds, `pick(concept)` takes one. */
export function startPicker(ask, pick) {
  const field = find("search");
  const box = find("results");
  let results = [];
  let at = -1;
  let asking = new AbortController();

  const close = () => {
    asking.abort();
    box.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const take = (number) => {
    const chosen = results[number];
    if (!chosen) return;
    field.value = "";
    close();
    field.blur();
    pick(chosen);
  };
  const mark = (number) => {
    at = number;
    [...box.children].forEach((row, one) => row.setAttribute("aria-selected", String(one === at)));
    if (at < 0) return;
    field.setAttribute("aria-activedescendant", `result-${at}`);
    box.children[at].scrollIntoView({ block: "nearest" });
  };
  const show = (found) => {
    results = found;
    const rows = found.map((one, number) => make("li", {
      role: "option", id: `result-${number}`, "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(), onclick: () => take(number),
    }, make("span", {}, one.matched_name), " ", make("code", {}, one.concept_id),
      one.matched_name === one.preferred_name ? null : make("small", {}, one.preferred_name)));
    box.replaceChildren(...(rows.length ? rows : [make("li", { class: "quiet" }, "No name begins so.")]));
    box.hidden = false;
    field.setAttribute("aria-expanded", "true");
    announce(some(found.length, "concept"));
    mark(found.length ? 0 : -1);
  };
  const look = settled(async () => {
    const text = field.value.trim();
    if (!text) return;
    asking = new AbortController();
    try {
      show(await ask(text, asking.signal));
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }, 120);

  field.addEventListener("input", () => {
    close();
    results = [];
    look();
  });
  field.addEventListener("focus", () => field.closest(".other").scrollIntoView({ block: "nearest" }));
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && results.length) mark((at + step + results.length) % results.length);
    else if (event.key === "Enter") take(at);
    else if (event.key === "Escape") field.blur();
    else return;
    event.preventDefault();
  });
}
