// How a tenant stands, in one word and in one sentence. Worst first.

import { visible } from "./dom.js";
import { between, duration, known, plural, rate } from "./format.js";

const KINDS = {
  "one-sided": { word: "Labels one-sided", sign: "!" },
  tolerance: { word: "Gap alert", sign: "▲" },
  drift: { word: "Drift alert", sign: "▲" },
};
const ORDER = ["one-sided", "tolerance", "drift"];

// level: 3 alert, 2 look at it, 1 cannot say, 0 fine. `gap` is the lifetime's, equalized odds.
export function stateOf(tenant, gap) {
  const kind = ORDER.find((one) => tenant.alerts.some((alert) => alert.kind === one));
  if (kind) return { level: 3, alert: true, ...KINDS[kind] };
  if (tenant.alerts.length) return { level: 3, alert: true, word: "Alert", sign: "▲" };
  if (tenant.one_sided === true || tenant.one_sided?.length) return { level: 2, ...KINDS["one-sided"] };
  if (!known(tenant.tolerance)) return { level: 1, word: "Not watched", sign: "○" };
  if (known(gap?.lower) && gap.lower > tenant.tolerance) return { level: 2, word: "Above tolerance", sign: "△" };
  if (tenant.learning) return { level: 1, word: "Learning", sign: "…" };
  if (!known(gap?.value)) return { level: 1, word: "No labels yet", sign: "…" };
  if (known(gap.upper) && gap.upper <= tenant.tolerance) return { level: 0, word: "Within tolerance", sign: "✓" };
  return { level: 0, word: "No alert", sign: "✓" };
}

export const unattainable = (tenant) =>
  known(tenant.attainable) && known(tenant.tolerance) && tenant.attainable > tenant.tolerance;

// States of a partition in which nothing is decided and nothing comes back by itself within moments.
const STOPPED = new Set(["stalled", "broken", "quarantined", "unavailable"]);

// Whether decisions are made at all. null if they are.
export function standing(partitions) {
  if (!partitions.length) return { level: 2, word: "No partition", text: "No partition is owned", detail: "Others have them all, or the broker has given none yet: nothing is decided here." };
  const still = partitions.filter(({ state }) => STOPPED.has(state)).length;
  if (still) return { level: 3, word: "Standing still", text: `Decisions stand still${share(still, partitions.length)}`, detail: "" };
  const coming = partitions.filter(({ state }) => state !== "ready").length;
  if (coming) return { level: 2, word: "Recovering", text: `No decisions yet${share(coming, partitions.length)}`, detail: "Their state is being recovered." };
  return null;
}

export const troubleOf = ({ number, state, trouble, waiting }) =>
  `Partition ${number} is ${state}${trouble ? `: ${visible(trouble)}` : ""}.${waiting >= 1 ? ` It has not moved for ${duration(waiting)} although something waits.` : ""}`;

const share = (some, all) => (some < all ? ` on ${some} of ${all} partitions` : all === 1 ? "" : ` on all ${all} partitions`);

// What a person on call reads first: whether it decides, then whether it decides fairly.
export function verdict(tenants, partitions) {
  const still = standing(partitions);
  const judged = fairness(tenants);
  if (!still) return judged;
  const level = Math.max(still.level, judged.level);
  if (judged.level < 2) return { level, text: still.text, detail: still.detail };
  return { level, text: `${still.text}; ${judged.text}`, detail: `${still.detail} ${judged.detail}`.trim() };
}

function fairness(tenants) {
  if (!tenants.length) return { level: 1, text: "No tenants yet", detail: "They appear with their first request." };
  const alerts = tenants.filter(({ state }) => state.alert).length;
  const above = tenants.filter(({ state }) => state.level === 2).length;
  if (alerts) {
    const text = `${plural(alerts, "tenant has", "tenants have")} an alert`;
    return { level: 3, text, detail: above ? `${plural(above, "more asks", "more ask")} for a look.` : "" };
  }
  if (above) return { level: 2, text: `${plural(above, "tenant asks", "tenants ask")} for a look`, detail: "No alert." };
  const unsure = tenants.filter(({ state }) => state.level === 1).length;
  if (unsure === tenants.length) return { level: 1, text: "Still learning", detail: "Too few labels to tell yet." };
  const judged = `${plural(tenants.length - unsure, "tenant is", "tenants are")} watched`;
  return { level: 0, text: "No alerts", detail: unsure ? `${judged}, ${plural(unsure, "other")} cannot be judged yet.` : `${judged}.` };
}

export const gapSentence = (gap, tolerance) =>
  `gap ${rate(gap.value)}` +
  (known(gap.lower) ? `, ${between(gap)}` : "") +
  (known(tolerance) ? `; tolerance ${rate(tolerance)}` : "");
