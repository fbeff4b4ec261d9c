// Side panel of a concept: its names with their sources, and the nearest concepts.

import { count, find, link, make, tags } from "./dom.js";

let pending = new AbortController();
const history = [];

/** Open the panel of a concept; `ask(id, signal)` fetches it, `pick(concept)` selects it for the mention. */
export async function openConcept(id, ask, pick) {
  const panel = find("concept");
  pending.abort();
  pending = new AbortController();
  if (!panel.open) {
    history.length = 0;
    panel.showModal();
  }
  history.push(id);
  find("concept-body").replaceChildren(make("p", { class: "quiet" }, "\u2026"));
  try {
    show(await ask(id, pending.signal), ask, pick);
  } catch (error) {
    if (error.name === "AbortError") return;
    find("concept-body").replaceChildren(make("p", {}, `The concept cannot be shown: ${error.message}.`));
  }
}

function show(concept, ask, pick) {
  const open = (id) => openConcept(id, ask, pick);
  const back = () => {
    history.pop();
    open(history.pop());
  };
  const take = () => {
    find("concept").close();
    pick({ ...concept, matched_name: concept.preferred_name });
  };
  const ids = [concept.concept_id, ...concept.aliases];
  const more = concept.name_count - concept.names.length;
  find("concept-body").replaceChildren(...[
    make("h2", { id: "concept-name", tabindex: "-1" }, concept.preferred_name || concept.concept_id),
    make("p", {}, ...ids.flatMap((id) => [make("code", {}, id), " "]), ...tags(concept)),
    concept.sources.length ? make("p", { class: "fine" }, `From ${concept.sources.join(", ")}`) : null,
    make("p", { class: "acts" },
      make("button", { type: "button", class: "strong", onclick: take }, "Choose this concept"),
      history.length > 1 ? make("button", { type: "button", onclick: back }, "Back") : null),
    make("h3", {}, `Names `, make("small", {}, count(concept.name_count))),
    make("ul", { class: "names" }, ...concept.names.map(({ name, sources }) =>
      make("li", {}, name, " ", concept.sources.length > 1 ? make("small", {}, sources.join(", ")) : null))),
    more > 0 ? make("p", { class: "quiet" }, `and ${count(more)} more`) : null,
    concept.neighbours.length ? make("h3", {}, "Nearest concepts") : null,
    make("ol", { class: "near" }, ...concept.neighbours.map((near) => make("li", {},
      make("span", { class: "number" }, near.score.toFixed(2)),
      make("span", {},
        link(near.preferred_name, () => open(near.concept_id)), " ", make("code", {}, near.concept_id))))),
  ].filter(Boolean));
  find("concept-name").focus();
}
