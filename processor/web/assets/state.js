// How a tenant stands, in one word and in one sentence. Worst first.

import { between, known, plural, rate } from "./format.js";

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

// What a person on call reads first.
export function verdict(tenants) {
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
