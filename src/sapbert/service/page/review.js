// The pane of one mention: its candidates with matched names and scores, and the decision.

import { find, link, make, tags } from "./dom.js";

const MATCH_KINDS = {
  exact: "exact name",
  words: "the same words",
  dense: "similar name",
  hybrid: "similar name and spelling",
  ancestor: "broader concept",
  hand: "selected by hand",
};
const NO_MENTION = "No mention matches the filter. Change the filter of the list.";
const NOT_LINKED = "Not linked because of an error. Press Continue, or reload the page.";
const SHOWN_COLUMNS = 6;
const SHOWN_CANDIDATES = 5;

/** The candidates to show: those of the linker, and one selected by hand that is not among them. */
export function candidatesOf(item) {
  const found = item.candidates ?? [];
  const picked = item.decision?.candidate;
  return picked && !found.some((one) => one.concept_id === picked.concept_id) ? [...found, picked] : found;
}

/** Draw an item with its first candidates, or `all`; `acts` has accept(one), reject(one), open(id). */
export function review(worklist, item, { marked, all, stopped }, acts) {
  find("mention").textContent = item?.text ?? "No mention";
  find("where").textContent = item ? originOf(worklist, item) : NO_MENTION;
  const candidates = item ? candidatesOf(item) : [];
  const few = all || marked >= SHOWN_CANDIDATES ? candidates : candidates.slice(0, SHOWN_CANDIDATES);
  find("more").hidden = few.length === candidates.length;
  find("more").textContent = `${candidates.length - few.length} more`;
  find("candidates").replaceChildren(...few.map((one, at) => card(item, one, at, at === marked, acts)));
  const message = item ? messageFor(item, candidates, stopped) : "";
  find("none").textContent = message;
  find("none").hidden = !message;
}

function originOf({ columns, column, rows }, item) {
  const [first, ...more] = item.rows;
  if (more.length) return `in ${item.rows.length} rows`;
  const others = columns.map((name, at) => [name, rows[first][at].trim()])
    .filter(([, value], at) => at !== column && value);
  const shown = others.slice(0, SHOWN_COLUMNS).map((pair) => pair.join(" "));
  return [`row ${first + 1}`, ...shown].join(" \u00b7 ");
}

function messageFor({ problem, candidates, rejected }, shown, stopped) {
  if (problem) return problem;
  if (candidates === null && shown.length) return "";
  if (candidates === null) return stopped ? NOT_LINKED : "Linking\u2026";
  if (!shown.length) return "No candidates. Search for a concept, or choose NIL.";
  return shown.every((one) => rejected.includes(one.concept_id))
    ? "All candidates are rejected. Search for another concept, or choose NIL." : "";
}

function card(item, candidate, at, marked, acts) {
  const rejected = item.rejected.includes(candidate.concept_id);
  const accepted = item.decision?.candidate?.concept_id === candidate.concept_id;
  const name = candidate.preferred_name || candidate.concept_id;
  const button = (label, pressed, act, description) => make("button", {
    type: "button", class: label.toLowerCase(), onclick: act,
    "aria-pressed": String(pressed), "aria-label": `${description} ${name}`,
  }, label);
  const classes = ["candidate", marked && "marked", rejected && "rejected", accepted && "chosen"];
  return make("li", { class: classes.filter(Boolean).join(" "), "aria-current": marked ? "true" : null },
    at < 9 ? make("kbd", { title: `Press ${at + 1} to accept` }, String(at + 1)) : make("span"),
    make("div", { class: "what" },
      link(name, () => acts.open(candidate.concept_id), "name"), " ",
      make("code", {}, candidate.concept_id), " ", ...tags(candidate),
      make("p", { class: "by" }, ...matchOf(candidate))),
    scores(candidate),
    make("div", { class: "acts" },
      button("Accept", accepted, () => acts.accept(candidate), "Accept"),
      button("Reject", rejected, () => acts.reject(candidate), rejected ? "Do not reject" : "Reject")));
}

function matchOf({ matched_by, matched_name, preferred_name }) {
  if (matched_by === "hand") return [MATCH_KINDS.hand];
  const other = matched_name !== preferred_name;
  return other ? [`${MATCH_KINDS[matched_by]}: `, make("q", {}, matched_name)] : [MATCH_KINDS[matched_by]];
}

/** Confidence if there is one, score, and a bar, which is hidden from screen readers. */
function scores({ score, confidence }) {
  if (score == null) return make("div", { class: "scores" });
  const share = Math.min(Math.max(confidence ?? score, 0), 1);
  const bar = make("span", { class: "meter", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${100 * share}%`;
  return make("div", { class: "scores" }, bar,
    confidence == null ? null : make("strong", {}, `${Math.round(100 * confidence)} % confidence`),
    make("span", { title: "Similarity of mention and matched name, at most 1" }, `score ${score.toFixed(2)}`));
}
