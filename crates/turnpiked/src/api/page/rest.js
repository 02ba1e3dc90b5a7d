// Asks turnpiked. The token is in this tab alone, and goes out in a header alone.

const KEY = "turnpike-token";
const PATIENCE_MS = 10000;
// Samples of the history that are kept: as many as turnpiked keeps.
const KEPT = 180;

export class Refused extends Error {
  constructor(status, text, wait_s) {
    super(text);
    this.status = status;
    this.wait_s = wait_s;
  }
}

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

async function ask(path, signal) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, signal, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
  const answer = await fetch(`/api/v1/${path}`, options);
  if (answer.ok) return answer;
  const wait = Number(answer.headers.get("Retry-After"));
  let text = answer.statusText;
  try {
    text = (await answer.json()).error ?? text;
  } catch {
    // An answer without a body, as of a full server.
  }
  throw new Refused(answer.status, text, Number.isFinite(wait) ? wait : 0);
}

export const get = async (path, signal) => {
  const bounds = [AbortSignal.timeout(PATIENCE_MS), signal].filter(Boolean);
  return (await ask(path, AbortSignal.any(bounds))).json();
};

// Lines of JSON as they come, until the signal.
export async function* lines(path, signal) {
  const reader = (await ask(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// State that all views see. `data`: { status, peers, history }.
export class Store {
  data = null;
  // When it was answered, by our clock, and how far that is from turnpiked's.
  at = 0;
  skew = 0;
  restarted = null;

  // Three requests. Of the history only what is new.
  async refresh(signal) {
    const before = this.data?.history;
    const last = before?.samples.at(-1)?.number;
    const query = last === undefined ? "" : `?after=${last}`;
    const [status, peers, fresh] = await Promise.all([get("status", signal), get("peers", signal), get(`history${query}`, signal)]);
    let history = fresh;
    if (before && query) {
      const same = before.started_at === fresh.started_at && before.interfaces.join() === fresh.interfaces.join();
      if (same) history = { ...fresh, samples: [...before.samples, ...fresh.samples].slice(-KEPT) };
      else history = await get("history", signal);
    }
    if (before && before.started_at !== fresh.started_at) this.restarted = fresh.started_at;
    this.data = { status, peers, history };
    this.at = Date.now();
    this.skew = fresh.now - this.at / 1000;
  }
}
