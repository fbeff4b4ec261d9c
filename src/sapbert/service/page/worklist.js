// The list under review: what was given, found and decided. It knows nothing of the page.
//
// Equal mentions are one item and decided once; downloads have every row. What was given and decided is kept
// in the browser so that a reload loses nothing; candidates are not, as there may be too many: they are
// linked again. Both carry the list's number, so that two tabs never mix decisions of one list with another.

const LIST = "sapbert.list";
const DECISIONS = "sapbert.decisions";
export const KEPT = [LIST, DECISIONS];
const FIELDS = ["concept_id", "preferred_name", "matched_name", "score", "confidence", "matched_by"];

export class Worklist {
  #past = [];

  constructor({ id, linker, columns, column, rows }) {
    Object.assign(this, { id, linker, columns, column, rows });
    const items = new Map();
    rows.forEach((row, number) => {
      const text = row[column].trim();
      if (!text) return;
      if (!items.has(text)) {
        const number = items.size;
        items.set(text, { number, text, rows: [], candidates: null, decision: null, rejected: [] });
      }
      items.get(text).rows.push(number);
    });
    this.items = [...items.values()];
  }

  get decided() {
    return this.items.reduce((sum, item) => sum + (item.decision !== null), 0);
  }

  /** Decide for a candidate or, with none, for NIL. */
  decide(item, candidate = null) {
    this.#change([item], () => {
      item.decision = { candidate };
      item.rejected = item.rejected.filter((id) => id !== candidate?.concept_id);
    });
  }

  /** Reject a candidate, or take that back. */
  reject(item, candidate) {
    const id = candidate.concept_id;
    this.#change([item], () => {
      const taken = item.rejected.includes(id);
      item.rejected = taken ? item.rejected.filter((one) => one !== id) : [...item.rejected, id];
      if (!taken && item.decision?.candidate?.concept_id === id) item.decision = null;
    });
  }

  acceptPlain() {
    const items = this.items.filter(isPlain);
    this.#change(items, (item) => { item.decision = { candidate: item.candidates[0] }; });
    return items.length;
  }

  #change(items, alter) {
    this.#past.push(items.map((item) => [item, item.decision, item.rejected]));
    items.forEach(alter);
  }

  /** Take the last step back and return what it was about, or nothing. */
  undo() {
    const step = this.#past.pop() ?? [];
    for (const [item, decision, rejected] of step) Object.assign(item, { decision, rejected });
    return step.map(([item]) => item);
  }

  /** Keep the list in place of any other; false, with nothing kept, where the browser has no room for it. */
  keepList() {
    const { id, linker, columns, column, rows } = this;
    forget([DECISIONS]);
    const kept = keep(LIST, { id, linker, columns, column, rows });
    if (!kept) forget();
    return kept;
  }

  /** Keep decisions; false where there is no room or another tab keeps another list. */
  keepDecisions() {
    if (read(LIST)?.id !== this.id) return false;
    const decided = this.items.filter((item) => item.decision !== null || item.rejected.length);
    return keep(DECISIONS, { id: this.id, items: decided.map(pack) });
  }

  /** Take up the decisions that are kept; those of another tab too. */
  recall() {
    const kept = read(DECISIONS);
    if (kept?.id !== this.id) return;
    for (const item of this.items) Object.assign(item, { decision: null, rejected: [] });
    for (const [number, decision, rejected] of kept.items) {
      Object.assign(this.items[number], { decision: unpack(decision), rejected });
    }
  }
}

/** Whether a mention, not decided yet, is exactly one concept's name: nobody needs to look at it. */
export const isPlain = ({ decision, candidates, rejected }) =>
  decision === null && candidates?.[0]?.matched_by === "exact" && candidates[1]?.matched_by !== "exact"
  && !rejected.includes(candidates[0].concept_id);

function pack({ number, decision, rejected }) {
  const { candidate } = decision ?? {};
  const values = candidate ? FIELDS.map((field) => candidate[field]) : [];
  return [number, decision && values, rejected];
}

function unpack(values) {
  if (values === null) return null;
  const named = Object.fromEntries(FIELDS.map((field, at) => [field, values[at]]));
  return { candidate: values.length ? { ...named, types: [] } : null };
}

/** The list that is kept, with its decisions, or null. */
export function recallWorklist() {
  const kept = read(LIST);
  if (kept === null) return null;
  try {
    const worklist = new Worklist(kept);
    worklist.recall();
    return worklist;
  } catch {
    return null; // written by another version of this page, or damaged
  }
}

export function forget(names = KEPT) {
  try {
    names.forEach((name) => localStorage.removeItem(name));
  } catch {
    // A browser that lets pages keep nothing has nothing to forget.
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}
