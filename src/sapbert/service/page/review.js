// One mention and its candidates: what was found, by which name, how surely, and what is decided.

import { find, link, make, tags } from "./dom.js";

const HOW = {
  exact: "the same name",
  dense: "a similar name",
  hybrid: "a similar name and spelling",
  hand: "picked by hand",
};
const NOTHING = "No mention is like this. Choose another view of the list.";
const CARRIED = 6;
const FEW = 5;

/** The candidates that are shown: those found, and one picked by hand that is not among them. */
export function shownOf(item) {
  const found = item.candidates ?? [];
  const picked = item.decision?.candidate;
  return picked && !found.some((one) => one.concept_id === picked.concept_id) ? [...found, picked] : found;
}

/** Draw an item, the first of its candidates or `all`; `acts` has accept(one), reject(one), open(id). */
export function review(worklist, item, { marked, all }, acts) {
  find("mention").textContent = item?.text ?? "Nothing here";
  find("where").textContent = item ? whereOf(worklist, item) : NOTHING;
  const candidates = item ? shownOf(item) : [];
  const few = all || marked >= FEW ? candidates : candidates.slice(0, FEW);
  find("more").hidden = few.length === candidates.length;
  find("more").textContent = `${candidates.length - few.length} more`;
  find("candidates").replaceChildren(...few.map((one, at) => card(item, one, at, at === marked, acts)));
  const words = item ? wordsFor(item, candidates) : "";
  find("none").textContent = words;
  find("none").hidden = !words;
}

function whereOf({ columns, column, rows }, item) {
  const [first, ...more] = item.rows;
  if (more.length) return `in ${item.rows.length} rows`;
  const others = columns.map((name, at) => [name, rows[first][at].trim()])
    .filter(([, value], at) => at !== column && value);
  const carried = others.slice(0, CARRIED).map((pair) => pair.join(" "));
  return [`row ${first + 1}`, ...carried].join(" \u00b7 ");
}

function wordsFor({ problem, candidates, rejected }, shown) {
  if (problem) return problem;
  if (candidates === null) return shown.length ? "" : "Being linked\u2026";
  if (!shown.length) return "No candidate was found. Search for a concept, or say NIL.";
  return shown.every((one) => rejected.includes(one.concept_id))
    ? "All candidates are rejected. Search for another concept, or say NIL." : "";
}

function card(item, found, at, marked, acts) {
  const rejected = item.rejected.includes(found.concept_id);
  const accepted = item.decision?.candidate?.concept_id === found.concept_id;
  const name = found.preferred_name || found.concept_id;
  const button = (label, pressed, act, words) => make("button", {
    type: "button", class: label.toLowerCase(), onclick: act,
    "aria-pressed": String(pressed), "aria-label": `${words} ${name}`,
  }, label);
  const classes = ["candidate", marked && "marked", rejected && "rejected", accepted && "chosen"];
  return make("li", { class: classes.filter(Boolean).join(" "), "aria-current": marked ? "true" : null },
    at < 9 ? make("kbd", { title: `Press ${at + 1} to accept` }, String(at + 1)) : make("span"),
    make("div", { class: "what" },
      link(name, () => acts.open(found.concept_id), "name"), " ",
      make("code", {}, found.concept_id), " ", ...tags(found),
      make("p", { class: "by" }, ...byWhat(found))),
    sureness(found),
    make("div", { class: "acts" },
      button("Accept", accepted, () => acts.accept(found), "Accept"),
      button("Reject", rejected, () => acts.reject(found), rejected ? "Do not reject" : "Reject")));
}

function byWhat({ matched_by, matched_name, preferred_name }) {
  if (matched_by === "hand") return [HOW.hand];
  const other = matched_name !== preferred_name;
  return other ? [`${HOW[matched_by]}: `, make("q", {}, matched_name)] : [HOW[matched_by]];
}

/** Confidence where there is one, the score always; the bar is for the eye alone. */
function sureness({ score, confidence }) {
  if (score == null) return make("div", { class: "sure" });
  const share = Math.min(Math.max(confidence ?? score, 0), 1);
  const bar = make("span", { class: "meter", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${100 * share}%`;
  return make("div", { class: "sure" }, bar,
    confidence == null ? null : make("strong", {}, `${Math.round(100 * confidence)} % sure`),
    make("span", { title: "Similarity of mention and name: 1 is the same" }, `score ${score.toFixed(2)}`));
}
