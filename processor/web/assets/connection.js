// Asking for figures: one question at a time, again and again, and never while nobody looks.

const EVERY = 1000; // milliseconds
const PATIENCE = 8000;
const SHARE = 5; // a slow answer (many tenants, a bad line) is asked for less often: a fifth of the time at most

export class TokenNeeded extends Error {}
export class NotHere extends Error {}

export const token = {
  get: () => sessionStorage.getItem("token"),
  set: (value) => sessionStorage.setItem("token", value),
};

export async function ask(path, signal) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  const limit = AbortSignal.timeout(PATIENCE);
  const answer = await fetch(path, { headers, signal: AbortSignal.any([signal, limit]), cache: "no-cache" });
  if (answer.status === 401) throw new TokenNeeded();
  if (answer.status === 404) throw new NotHere();
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// Calls `turn` about every second until stopped; `told` hears how each turn went.
export function repeatedly(turn, told) {
  const stopping = new AbortController();
  const { signal } = stopping;
  (async () => {
    let failures = 0;
    while (!signal.aborted) {
      await shown(signal);
      const started = performance.now();
      let error = null;
      try {
        await turn(signal);
        failures = 0;
      } catch (problem) {
        error = problem;
        failures += 1;
      }
      if (signal.aborted) return;
      told(error);
      if (error instanceof TokenNeeded) return;
      const took = performance.now() - started;
      await pause(Math.max(EVERY, took * SHARE, Math.min(failures, 5) * EVERY), signal);
    }
  })();
  return () => stopping.abort();
}

const shown = async (signal) => {
  while (document.hidden && !signal.aborted) await event(document, "visibilitychange", signal);
};

const pause = (milliseconds, signal) => event(null, milliseconds, signal);

// Waits for an event of a target, or without one for a time; the end of the signal ends the wait. Leaves no listener.
const event = (target, what, signal) =>
  new Promise((done) => {
    const end = () => {
      if (target) target.removeEventListener(what, end);
      else clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = target ? target.addEventListener(what, end) : setTimeout(end, what);
    signal.addEventListener("abort", end);
  });
