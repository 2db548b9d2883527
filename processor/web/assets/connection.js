// Asking for figures: one question at a time, again and again, and never while nobody looks.

const EVERY = 1000; // milliseconds
const PATIENCE = 8000;
const LONGEST = 3000; // whatever went wrong, somebody may be waiting for it to be right again
const SHARE = 5; // a slow answer (many tenants, a bad line) is asked for less often

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
    while (!signal.aborted) {
      await shown(signal);
      const started = performance.now();
      let error = null;
      try {
        await turn(signal);
      } catch (problem) {
        error = problem;
      }
      if (signal.aborted) return;
      told(error);
      if (error instanceof TokenNeeded) return;
      const took = performance.now() - started;
      await pause(Math.min(Math.max(EVERY, took * SHARE), LONGEST), signal);
    }
  })();
  return () => stopping.abort();
}

const shown = async (signal) => {
  while (document.hidden && !signal.aborted) await pause(null, signal);
};

// Waits so long, or without end; until the tab is hidden or shown, or the signal ends. Leaves no listener.
const pause = (milliseconds, signal) =>
  new Promise((done) => {
    const end = () => {
      document.removeEventListener("visibilitychange", end);
      signal.removeEventListener("abort", end);
      clearTimeout(timer);
      done();
    };
    const timer = milliseconds === null ? null : setTimeout(end, milliseconds);
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end);
  });
