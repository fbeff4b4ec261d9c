// Questions to the service. Mentions travel in bodies, never in addresses, which proxies keep.

const BATCH = 256;
const PATIENCE = 30;

let key = null;

/** What the service answered instead, in its own words. */
class Refusal extends Error {
  constructor(status, words, wait) {
    super(words);
    this.status = status;
    this.wait = wait;
  }
}

export function useKey(text) {
  key = text;
}

export const hasKey = () => key !== null;

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `the service answered ${answer.status}` }));
  throw new Refusal(answer.status, error, Number(answer.headers.get("Retry-After") ?? 1));
}

const post = (path, content, { signal, accept = "application/json" } = {}) =>
  ask(path, {
    method: "POST", signal, body: JSON.stringify(content),
    headers: { "Content-Type": "application/json", Accept: accept },
  });

const address = (path, values) => `${path}?${new URLSearchParams(values)}`;

export const version = async () => (await ask("v1/version")).json();

export const concept = async (linker, id, signal) => {
  const path = address(`v1/concepts/${encodeURIComponent(id)}`, { linker, neighbours: 12 });
  return (await ask(path, { signal })).json();
};

export const search = async (linker, prefix, { types, prefixes }, signal) => {
  const wanted = Object.entries({ type: types, namespace: prefixes }).filter(([, value]) => value);
  const values = { linker, prefix, limit: 12, ...Object.fromEntries(wanted) };
  return (await (await ask(address("v1/search", values), { signal })).json()).results;
};

export const map = async (linker, mention, signal) =>
  (await post(address("v1/map", { linker }), { mention: mention.toWellFormed() }, { signal })).json();

/** Link mentions in batches the service takes; `found(number, candidates)` is called as answers come. */
export async function link(linker, mentions, { limits, filters, signal, found }) {
  for (let start = 0; start < mentions.length;) {
    const end = batchEnd(mentions, start, limits);
    start = await patiently(signal, (received) => {
      // Half a character, as a cut emoji leaves it, is no text to the service.
      const whole = mentions.slice(received, end).map((mention) => mention.toWellFormed());
      const asked = { mentions: whole, k: 9, ...filters };
      return linkBatch(linker, asked, signal, (at, candidates) => found(received + at, candidates));
    }, start);
  }
}

/** As many as fit: at most six bytes a character, and some for what stands around them. */
function batchEnd(mentions, start, limits) {
  let bytes = 1_000;
  let end = start;
  while (end < mentions.length && end - start < Math.min(BATCH, limits.mentions)) {
    bytes += 6 * mentions[end].length + 4;
    if (end > start && bytes > limits.body_bytes) break;
    end += 1;
  }
  return end;
}

/** Ask again while the service has too much to do, from where it stopped. */
async function patiently(signal, act, start) {
  for (let tries = 1; ; tries += 1) {
    try {
      return start + await act(start);
    } catch (error) {
      if (!(error instanceof Refusal && [429, 503].includes(error.status)) || tries === PATIENCE) throw error;
      start += error.received ?? 0;
      await new Promise((resolve) => { setTimeout(resolve, 1000 * Math.min(error.wait, 10)); });
      signal.throwIfAborted();
    }
  }
}

async function linkBatch(linker, asked, signal, found) {
  const path = address("v1/link", { linker });
  const answer = await post(path, asked, { signal, accept: "application/x-ndjson" });
  let received = 0;
  for await (const line of linesOf(answer.body)) {
    const { error, candidates } = JSON.parse(line);
    if (error !== undefined) throw Object.assign(new Refusal(503, error, 1), { received });
    found(received, candidates);
    received += 1;
  }
  if (received < asked.mentions.length) throw new Refusal(0, "the service stopped in the middle", 1);
  return received;
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines;
  }
  if (rest) yield rest;
}
