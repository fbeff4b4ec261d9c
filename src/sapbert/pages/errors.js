"use strict";
// Shows the wrong links that match the filters, a few at a time. Data is inserted as text, never as markup.

const STEP = 50;
const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const [search, kind, dictionary, count, links, more] =
  ["search", "kind", "dictionary", "count", "links", "more"].map(element);
let matching = [];

/** An element with text, or with children; null and "" are left out. */
function make(tag, content, looks) {
  const made = document.createElement(tag);
  if (looks) made.className = looks;
  made.append(...[content].flat().filter((one) => one !== null && one !== ""));
  return made;
}

const selectedDictionary = () => data.dictionaries[dictionary.selectedIndex];

/** Searchable text of a link; computed once, so that typing stays fast. */
function haystack(link, concepts) {
  link.text ??= [
    ...link.raws, ...link.documents, ...link.gold,
    ...link.gold.flatMap((id) => concepts[id]?.names ?? []),
    ...link.parts.flatMap((part) => [part.text, ...part.answers.flatMap(([name, ids]) => [name, ids])]),
  ].join("\n").toLowerCase();
  return link.text;
}

function card(link, concepts) {
  const where = link.rank === null ? `no correct candidate among ${data.depth}` : `correct at rank ${link.rank}`;
  const title = make("h3", [
    make("span", link.parts.map((part) => part.text).join(" | ")),
    link.times > 1 ? make("span", `\u00d7 ${link.times}`, "number") : null,
    make("span", link.kind, "tag"),
    make("small", link.seen ? `${where}, seen in training` : where),
  ]);
  const written = `written as ${link.raws.map((raw) => `\u201c${raw}\u201d`).join(", ")}`;
  const documents = link.documents.length ? ` in ${link.documents.join(", ")}` : "";
  return make("article", [
    title,
    make("small", written + documents, "quiet"),
    make("div", [
      make("div", link.parts.flatMap((part) => answers(part, link.parts.length > 1))),
      make("div", [make("h4", "gold"), make("ul", link.gold.map((id) => gold(id, concepts[id])))]),
    ], "columns"),
  ], "card");
}

function answers(part, several) {
  const rows = part.answers.map(([name, ids, score, right], at) => make("li", [
    make("span", score.toFixed(3), "number quiet"),
    make("span", [
      make("span", name, right ? "good" : at === 0 ? "bad" : ""), " ",
      make("small", right ? `${ids} \u2713 gold` : ids),
    ]),
  ]));
  const heading = make("h4", several ? `candidates for ${part.text}` : "candidates");
  return [heading, rows.length ? make("ol", rows) : make("p", "no candidate", "quiet")];
}

function gold(id, concept) {
  if (!concept) return make("li", [make("span", "not in the dictionary", "good"), " ", make("small", id)]);
  const [first, ...others] = concept.names;
  const more = concept.more ? [`and ${concept.more} more`] : [];
  const also = [...others, ...more].join("; ");
  return make("li", [make("span", first, "good"), " ", make("small", id), make("div", make("small", also))]);
}

function showMore() {
  const shown = links.childElementCount;
  const { concepts } = selectedDictionary();
  links.append(...matching.slice(shown, shown + STEP).map((link) => card(link, concepts)));
  more.hidden = links.childElementCount >= matching.length;
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const { links: all, concepts } = selectedDictionary();
  matching = all.filter((link) => (!kind.value || link.kind === kind.value)
    && words.every((word) => haystack(link, concepts).includes(word)));
  const mentions = matching.reduce((sum, link) => sum + link.times, 0);
  count.textContent = `${matching.length.toLocaleString("en")} links, ${mentions.toLocaleString("en")} mentions`;
  for (const button of document.querySelectorAll("[data-kind] button")) {
    button.setAttribute("aria-pressed", String(button.textContent === kind.value));
  }
  links.replaceChildren();
  showMore();
}

for (const row of document.querySelectorAll("[data-kind]")) {
  const name = row.dataset.kind;
  kind.append(new Option(name, name));
  const button = make("button", name, "plain");
  button.type = "button";
  button.addEventListener("click", () => {
    kind.value = kind.value === name ? "" : name;
    filter();
    document.querySelector(".tools").scrollIntoView();
  });
  row.replaceChildren(button);
}
dictionary.append(...data.dictionaries.map(({ name }) => new Option(name)));
for (const input of [search, kind, dictionary]) input.addEventListener("input", filter);
document.querySelector(".tools").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});
more.addEventListener("click", showMore);
new IntersectionObserver(([entry]) => entry.isIntersecting && showMore(), { rootMargin: "600px" }).observe(more);
document.querySelector(".tools").hidden = false;
filter();
