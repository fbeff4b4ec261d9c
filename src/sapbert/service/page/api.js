// Requests to the service. Mentions are sent in bodies, never in URLs, because proxies log URLs.

const BATCH = 256;
const MAX_TRIES = 30;

let key = null;

/** An error answered by the service; `wait` is the time until a retry, in seconds. */
class ServiceError extends Error {
  constructor(status, message, wait) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

export function useKey(text) {
  key = text;
}

export const hasKey = () => key !== null;

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `the service answered ${answer.status}` }));
  throw new ServiceError(answer.status, error, Number(answer.headers.get("Retry-After") ?? 1));
}

const post = (path, content, { signal, accept = "application/json" } = {}) =>
  request(path, {
    method: "POST", signal, body: JSON.stringify(content),
    headers: { "Content-Type": "application/json", Accept: accept },
  });

const urlOf = (path, values) => `${path}?${new URLSearchParams(values)}`;

export const version = async () => (await request("v1/version")).json();

export const concept = async (linker, id, signal) => {
  const path = urlOf(`v1/concepts/${encodeURIComponent(id)}`, { linker, neighbours: 12 });
  return (await request(path, { signal })).json();
};

export const search = async (linker, prefix, { types, prefixes }, signal) => {
  const filters = Object.entries({ type: types, namespace: prefixes }).filter(([, value]) => value);
  const values = { linker, prefix, limit: 12, ...Object.fromEntries(filters) };
  return (await (await request(urlOf("v1/search", values), { signal })).json()).results;
};

export const map = async (linker, mention, signal) =>
  (await post(urlOf("v1/map", { linker }), { mention: mention.toWellFormed() }, { signal })).json();

/** Link mentions in batches within the limits; `onAnswer(number, candidates)` is called per mention. */
export async function link(linker, mentions, { limits, filters, signal, onAnswer }) {
  for (let start = 0; start < mentions.length;) {
    const end = batchEnd(mentions, start, limits);
    start = await withRetries(signal, (received) => {
      // The service refuses unpaired surrogates, such as half of an emoji.
      const whole = mentions.slice(received, end).map((mention) => mention.toWellFormed());
      const body = { mentions: whole, k: 9, ...filters };
      return linkBatch(linker, body, signal, (at, candidates) => onAnswer(received + at, candidates));
    }, start);
  }
}

/** End of the largest batch that fits: at most six bytes per character, plus the rest of the body. */
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

/** Retry while the service is overloaded, from the first mention without an answer. */
async function withRetries(signal, act, start) {
  for (let tries = 1; ; tries += 1) {
    try {
      return start + await act(start);
    } catch (error) {
      if (!(error instanceof ServiceError && [429, 503].includes(error.status)) || tries === MAX_TRIES) throw error;
      start += error.received ?? 0;
      await new Promise((resolve) => { setTimeout(resolve, 1000 * Math.min(error.wait, 10)); });
      signal.throwIfAborted();
    }
  }
}

async function linkBatch(linker, body, signal, onAnswer) {
  const path = urlOf("v1/link", { linker });
  const answer = await post(path, body, { signal, accept: "application/x-ndjson" });
  let received = 0;
  for await (const line of linesOf(answer.body)) {
    const { error, candidates } = JSON.parse(line);
    if (error !== undefined) throw Object.assign(new ServiceError(503, error, 1), { received });
    onAnswer(received, candidates);
    received += 1;
  }
  if (received < body.mentions.length) throw new ServiceError(0, "the answer of the service is incomplete", 1);
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
