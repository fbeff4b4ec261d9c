// Decisions as files: CSV with all rows of the input, or SSSOM with all decisions.

import { make } from "./dom.js";
import { writeTable } from "./tables.js";

const FIELDS = [
  "decision", "concept_id", "preferred_name", "matched_name", "score", "confidence", "matched_by", "rejected",
];
const COLUMNS = [
  "subject_label", "subject_type", "predicate_id", "predicate_modifier", "object_id", "object_label",
  "mapping_justification", "author_id", "author_label", "object_source", "similarity_score", "similarity_measure",
  "match_string",
];
const ORCID = /^(?:https:\/\/orcid\.org\/|orcid:)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])$/iu;

/** All rows of the input, each followed by the fields of its decision. */
export function csvOf(worklist) {
  const answers = new Map();
  for (const item of worklist.items) item.rows.forEach((row) => answers.set(row, fieldsOf(item)));
  const rows = worklist.rows.map((row, number) => [...row, ...(answers.get(number) ?? FIELDS.map(() => ""))]);
  return writeTable([[...inputNames(worklist.columns), ...FIELDS], ...rows], ",");
}

/** Names of the input columns, with a prefix where they clash with ours, in any case: databases ignore it. */
function inputNames(columns) {
  const taken = new Set([...columns, ...FIELDS].map((name) => name.toLowerCase()));
  return columns.map((column) => {
    if (!FIELDS.includes(column.toLowerCase())) return column;
    let name = column;
    while (taken.has(name.toLowerCase())) name = `input_${name}`;
    taken.add(name.toLowerCase());
    return name;
  });
}

function fieldsOf({ decision, rejected }) {
  const candidate = decision?.candidate;
  const state = decision === null ? "" : candidate ? "accepted" : "NIL";
  const values = FIELDS.slice(2, 7).map((field) => candidate?.[field]);
  return [state, candidate ? candidate.concept_id : decision && "NIL", ...values, rejected.join(" ")];
}

/** SSSOM/TSV: accepted candidates, rejected candidates and NIL; `author` is a name or an ORCID iD. */
export function sssomOf(worklist, about, author) {
  const source = `sapbert.index:${about.fingerprint}`;
  const head = [
    `mapping_set_id: https://w3id.org/sssom/mappings/${uuid()}`,
    "license: https://w3id.org/sssom/license/unspecified",
    "mapping_tool: sapbert",
    `mapping_tool_version: ${JSON.stringify(about.sapbert)}`,
    `mapping_date: ${JSON.stringify(new Date().toISOString().slice(0, 10))}`,
    "curie_map:",
    '  sapbert.index: "urn:sapbert:index:"',
    '  orcid: "https://orcid.org/"',
    ...about.prefixes.map((prefix) => `  "${prefix}": "https://bioregistry.io/${prefix}:"`),
  ];
  const orcid = ORCID.exec(author)?.[1].toUpperCase();
  const names = orcid ? [`orcid:${orcid}`, ""] : ["", author];
  const rows = worklist.items.flatMap((item) => mappingsOf(item, source, names));
  return head.map((line) => `# ${line}\n`).join("") + writeTable([COLUMNS, ...rows], "\t");
}

/** Exact matches that were accepted together were matched by their names; nobody looked at each of them. */
function mappingsOf({ text, decision, rejected, candidates }, source, author) {
  const label = text.replace(/\s+/gu, " ");
  const row = (modifier, object, candidate, bulk = false) => [
    label, "rdfs literal", "skos:exactMatch", modifier, object, candidate?.preferred_name,
    bulk ? "semapv:LexicalMatching" : "semapv:ManualMappingCuration", ...(bulk ? ["", ""] : author), source,
    // SSSOM requires a similarity between 0 and 1; a concept selected by hand has none.
    candidate?.score == null ? "" : Math.min(Math.max(candidate.score, 0), 1), candidate?.score == null ? "" : "cosine",
    candidate?.matched_name,
  ];
  const candidate = decision?.candidate;
  return [
    ...(decision === null ? [] : [
      row("", candidate?.concept_id ?? "sssom:NoTermFound", candidate, decision.bulk),
    ]),
    ...rejected.map((id) => row("Not", id, candidates?.find((one) => one.concept_id === id))),
  ];
}

/** crypto.randomUUID requires a secure context, but a service in an internal network may have no TLS. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Download a text as a file. */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
