// Numbers, times and the words for metrics. Unknown figures arrive as null.

export const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const rate = (value) => (known(value) ? value.toFixed(3).replace("-", "−") : "–");

export const band = ({ lower, upper }) => (known(lower) && known(upper) ? `${lower.toFixed(3)} to ${upper.toFixed(3)}` : "–");

export const between = ({ lower, upper }) => `between ${rate(lower)} and ${rate(upper)}`;

const whole = new Intl.NumberFormat("en");
export const count = (value) => (known(value) ? whole.format(value) : "–");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// Two units at most: "3 d 4 h", "12 s".
export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 1) return "under 1 s";
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = UNITS[first];
  const big = `${Math.floor(seconds / size)} ${unit}`;
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return rest && Math.floor(seconds / size) < 10 ? `${big} ${rest} ${next[0]}` : big;
}

// An upper bound, in one unit and rounded up: "4 h".
export function atMost(seconds) {
  if (!known(seconds)) return "–";
  const [unit, size] = UNITS.find(([, least]) => seconds > least) ?? UNITS.at(-1);
  return `≤ ${Math.max(1, Math.ceil(seconds / size))} ${unit}`;
}

// About pending decisions. Where only positive ones get a label, those that never will are not waited for, and the
// oldest may be one of them.
export const waiting = ({ pending, awaited }, oldest) =>
  awaited < pending ? `${awaited ? `≤ ${count(awaited)}` : "none"} can get a label` : `oldest ${atMost(oldest)}`;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dated = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const sameDay = (a, b) => a.toDateString() === b.toDateString();

export function moment(milliseconds) {
  const at = new Date(milliseconds);
  return sameDay(at, new Date()) ? clock.format(at) : dated.format(at);
}

const axisMinute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const axisDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// Labels of a time axis; `step` is the distance of its ticks in seconds.
export const axisTime = (seconds, step) =>
  (step >= 86400 ? axisDay : step >= 60 ? axisMinute : clock).format(new Date(seconds * 1000));

export const METRICS = {
  equalized_odds: { short: "Equalized odds", long: "The worst difference between two groups on any true label" },
  fpr: { short: "False positives", long: "The difference of false positive rates" },
  fnr: { short: "False negatives", long: "The difference of false negative rates" },
  error_rate: { short: "Error rate", long: "The difference of error rates, whatever the true label" },
};

const POLICIES = { groupaware: "GroupAware", mw: "MW", gforce: "G-FORCE" };
export const policy = (name) => POLICIES[name] ?? name.replace(/^gforce\/(.*)$/, "G-FORCE ($1)");

export const windowName = (name) => (name === "lifetime" ? "Lifetime" : `Last ${name}`);

// For a shell: names may hold anything.
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
