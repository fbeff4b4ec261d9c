// The list under review: input, candidates and decisions. Independent of the page.
//
// Equal mentions are one item and decided once; downloads have all rows. Input and decisions are stored in the
// browser, so that a reload loses nothing. Candidates may be too many to store and are linked again. Both stored
// values have the id of the list, so that two tabs never mix the decisions of different lists.

const LIST = "sapbert.list";
const DECISIONS = "sapbert.decisions";
const AUTHOR = "sapbert.author";
export const STORAGE_KEYS = [LIST, DECISIONS, AUTHOR];
const MAX_UNDO = 100;
const FIELDS = ["concept_id", "preferred_name", "matched_name", "score", "confidence", "matched_by"];

export class Worklist {
  #history = [];

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

  /** Accept a candidate or, without one, NIL. */
  decide(item, candidate = null) {
    this.#change([item], () => {
      item.decision = { candidate };
      item.rejected = item.rejected.filter((id) => id !== candidate?.concept_id);
    });
  }

  /** Reject a candidate, or undo its rejection. */
  reject(item, candidate) {
    const id = candidate.concept_id;
    this.#change([item], () => {
      const taken = item.rejected.includes(id);
      item.rejected = taken ? item.rejected.filter((one) => one !== id) : [...item.rejected, id];
      if (!taken && item.decision?.candidate?.concept_id === id) item.decision = null;
    });
  }

  acceptExact() {
    const items = this.items.filter(isExactMatch);
    this.#change(items, (item) => { item.decision = { candidate: item.candidates[0], bulk: true }; });
    return items.length;
  }

  #change(items, alter) {
    this.#history.push(items.map((item) => [item, item.decision, item.rejected]));
    items.forEach(alter);
  }

  /** Undo the last change and return the items that it affected; none if there is no change left. */
  undo() {
    const step = this.#history.pop() ?? [];
    for (const [item, decision, rejected] of step) Object.assign(item, { decision, rejected });
    return step.map(([item]) => item);
  }

  /** Store the list in place of any other; false, with nothing stored, if it is too large. */
  saveList() {
    const { id, linker, columns, column, rows } = this;
    forget([DECISIONS]);
    const stored = store(LIST, { id, linker, columns, column, rows });
    if (!stored) forget();
    return stored;
  }

  /** Store decisions; false if they are too large or another tab has stored another list. */
  saveDecisions() {
    if (read(LIST)?.id !== this.id) return false;
    const decided = this.items.filter((item) => item.decision !== null || item.rejected.length);
    const history = this.#history.slice(-MAX_UNDO).map((step) =>
      step.map(([{ number }, decision, rejected]) => pack({ number, decision, rejected })));
    return store(DECISIONS, { id: this.id, items: decided.map(pack), history });
  }

  /** Load the stored decisions, which may be those of another tab. */
  loadDecisions() {
    const stored = read(DECISIONS);
    if (stored?.id !== this.id) return;
    for (const item of this.items) Object.assign(item, { decision: null, rejected: [] });
    for (const [number, decision, rejected, bulk = false] of stored.items) {
      Object.assign(this.items[number], { decision: unpack(decision, bulk), rejected });
    }
    this.#history = (stored.history ?? []).map((step) => step.map(([number, decision, rejected, bulk]) =>
      [this.items[number], unpack(decision, bulk), rejected]));
  }
}

/** Whether an undecided mention equals a name of exactly one concept, so that it needs no review. */
export const isExactMatch = ({ decision, candidates, rejected }) =>
  decision === null && candidates?.[0]?.matched_by === "exact" && candidates[1]?.matched_by !== "exact"
  && !rejected.includes(candidates[0].concept_id);

function pack({ number, decision, rejected }) {
  const { candidate } = decision ?? {};
  const values = candidate ? FIELDS.map((field) => candidate[field]) : [];
  return [number, decision && values, rejected, decision?.bulk ?? false];
}

function unpack(values, bulk) {
  if (values === null) return null;
  const named = Object.fromEntries(FIELDS.map((field, at) => [field, values[at]]));
  return { candidate: values.length ? { ...named, types: [] } : null, bulk };
}

/** The stored list with its decisions, or null. */
export function loadWorklist() {
  const stored = read(LIST);
  if (stored === null) return null;
  try {
    const worklist = new Worklist(stored);
    worklist.loadDecisions();
    return worklist;
  } catch {
    return null; // damaged, or stored by another version of this page
  }
}

export function forget(names = STORAGE_KEYS) {
  try {
    names.forEach((name) => localStorage.removeItem(name));
  } catch {
    // Storage is disabled, so nothing is stored.
  }
}

/** Name or ORCID iD of the curator, asked for once; empty if there is none. */
export const loadAuthor = () => read(AUTHOR);
export const saveAuthor = (author) => store(AUTHOR, author);

function store(name, value) {
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
