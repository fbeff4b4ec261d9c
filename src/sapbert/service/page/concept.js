// A concept on a sheet at the side: its names, where they come from, and what is near it.

import { count, find, link, make, tags } from "./dom.js";

let asking = new AbortController();
const past = [];

/** Open the sheet for a concept; `ask(id, signal)` finds it, `pick(concept)` takes it for the mention. */
export async function openConcept(id, ask, pick) {
  const sheet = find("concept");
  asking.abort();
  asking = new AbortController();
  if (!sheet.open) {
    past.length = 0;
    sheet.showModal();
  }
  past.push(id);
  find("concept-body").replaceChildren(make("p", { class: "quiet" }, "\u2026"));
  try {
    show(await ask(id, asking.signal), ask, pick);
  } catch (error) {
    if (error.name === "AbortError") return;
    find("concept-body").replaceChildren(make("p", {}, `It cannot be shown: ${error.message}.`));
  }
}

function show(found, ask, pick) {
  const open = (id) => openConcept(id, ask, pick);
  const back = () => {
    past.pop();
    open(past.pop());
  };
  const take = () => {
    find("concept").close();
    pick({ ...found, matched_name: found.preferred_name });
  };
  const ids = [found.concept_id, ...found.aliases];
  const more = found.name_count - found.names.length;
  find("concept-body").replaceChildren(...[
    make("h2", { id: "concept-name", tabindex: "-1" }, found.preferred_name || found.concept_id),
    make("p", {}, ...ids.flatMap((id) => [make("code", {}, id), " "]), ...tags(found)),
    found.sources.length ? make("p", { class: "fine" }, `From ${found.sources.join(", ")}`) : null,
    make("p", { class: "acts" },
      make("button", { type: "button", class: "strong", onclick: take }, "Choose this concept"),
      past.length > 1 ? make("button", { type: "button", onclick: back }, "Back") : null),
    make("h3", {}, `Names `, make("small", {}, count(found.name_count))),
    make("ul", { class: "names" }, ...found.names.map(({ name, sources }) =>
      make("li", {}, name, " ", found.sources.length > 1 ? make("small", {}, sources.join(", ")) : null))),
    more > 0 ? make("p", { class: "quiet" }, `and ${count(more)} more`) : null,
    found.neighbours.length ? make("h3", {}, "Nearest concepts") : null,
    make("ol", { class: "near" }, ...found.neighbours.map((near) => make("li", {},
      make("span", { class: "number" }, near.score.toFixed(2)),
      make("span", {},
        link(near.preferred_name, () => open(near.concept_id)), " ", make("code", {}, near.concept_id))))),
  ].filter(Boolean));
  find("concept-name").focus();
}
