// Alerts and warnings in plain words, with what they rest on and what to do.

import { el, named, patch, setText } from "./dom.js";
import { between, count, known, moment, plural, quoted, rate } from "./format.js";
import { troubleOf } from "./state.js";

const TITLES = {
  tolerance: "The gap has exceeded the tolerance",
  drift: "The groups' error rates have drifted apart",
  "one-sided": "Some decisions never get a label",
};

function alertsOf(tenant, alert) {
  return el("article", { class: "alert", "data-key": `alert ${alert.number}` },
    el("h2", null, el("span", { "aria-hidden": "true" }, alert.kind === "one-sided" ? "! " : "▲ "), TITLES[alert.kind] ?? alert.kind),
    el("p", null, named(alert.text.replaceAll(" %", "\u00a0%"))),
    alert.evidence.whole ? evidence(alert) : null,
    el("p", { class: "muted" }, ending(alert)),
    alert.kind === "tolerance" ? el("p", null, "Once you have looked into it: ", el("code", null, `gforce acknowledge ${quoted(tenant.name)} ${alert.number}`)) : null);
}

// Before all else: figures of a partition that stands still say how it was.
export const standsStill = (partition, { level, text, detail }) =>
  el("article", { class: level === 3 ? "alert" : "warning", "data-key": "standing" },
    el("h2", null, el("span", { "aria-hidden": "true" }, level === 3 ? "▲ " : "△ "), text),
    el("p", null, partition ? troubleOf(partition) : detail));

const SHOWN = 3; // in full; the figures below must not be pushed out of sight

// The first in full, the others folded. It is made once, so what somebody has unfolded stays so.
export class Alerts {
  constructor() {
    this.first = el("div", { class: "alerts" });
    this.counted = el("summary");
    this.rest = el("div", { class: "alerts" });
    this.folded = el("details", { class: "more-alerts", hidden: true }, this.counted, this.rest);
    this.notices = el("div", { class: "alerts" });
    this.box = el("section", { "aria-label": "Alerts" }, this.first, this.folded, this.notices);
  }

  draw(tenant, before) {
    const cards = tenant.alerts.map((alert) => alertsOf(tenant, alert));
    patch(this.first, [before, ...cards.slice(0, SHOWN)]);
    patch(this.rest, cards.slice(SHOWN));
    setText(this.counted, plural(Math.max(cards.length - SHOWN, 0), "more alert"));
    this.folded.hidden = cards.length <= SHOWN;
    patch(this.notices, warningsOf(tenant));
  }
}

const ending = (alert) =>
  ({
    tolerance: `Alert ${alert.number}, raised ${moment(alert.since)}. It stays until somebody acknowledges it, even if the gap closes.`,
    drift: `Alert ${alert.number}, raised ${moment(alert.since)}. It clears by itself once the rates have come together again.`,
    "one-sided": `Alert ${alert.number}, raised ${moment(alert.since)}. Until labels come for every decision, the figures below are not valid.`,
  })[alert.kind] ?? `Alert ${alert.number}, raised ${moment(alert.since)}.`;

function evidence({ groups, label, evidence: { whole, recent: later, pairs, wealth, threshold, onset } }) {
  const recent = onset && String(later?.labels) !== String(whole.labels) ? later : null; // else it is all there is
  const cells = (rates, index) => [rates.errors[index], rates.labels[index], rates.rates[index]];
  const row = (group, index) => el("tr", null, el("th", { scope: "row" }, named(group)),
    [whole, recent].filter(Boolean).flatMap((rates) => {
      const [errors, labels, share] = cells(rates, index);
      return [el("td", { class: "number" }, `${count(errors)} of ${count(labels)}`), el("td", { class: "number" }, rate(share))];
    }));
  const head = [el("th", { scope: "colgroup", colspan: 2 }, "Since the test began")];
  if (recent) head.push(el("th", { scope: "colgroup", colspan: 2 }, `Since about ${moment(onset)}`));
  const sign = Math.sign(whole.gap) || 1; // the first group may be the better off
  const ends = [sign * whole.lower, sign * whole.upper].sort((a, b) => a - b);
  const gapBand = known(whole.lower) ? `, ${between({ lower: ends[0], upper: ends[1] })}` : "";
  return el("div", null,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Evidence" },
      el("table", { class: "plain" },
        el("caption", null, "Decided wrongly, of cases that were ", named(label)),
        el("thead", null, el("tr", null, el("td"), head)),
        el("tbody", null, groups.map(row)))),
    el("p", { class: "muted" }, `Difference ${rate(sign * whole.gap)}${gapBand} · ${plural(pairs, "pair")} of labels compared · evidence ${count(Math.round(wealth))} where ${count(Math.round(threshold))} raises the alert.`));
}

function warningsOf(tenant) {
  const found = [];
  const told = tenant.alerts.some((alert) => alert.kind === "one-sided");
  if (tenant.one_sided.length && !told) {
    found.push(warning("one-sided", "Some decisions never get a label",
      ["Cases decided ", list(tenant.one_sided), " get no label although others do. Their errors are not seen, so every fairness figure here is wrong. If labels cannot come for them, set feedback = \"positive-only\"; the learner then begins anew."]));
  }
  for (const expert of tenant.constant_experts) {
    found.push(warning(`constant ${expert}`, "An expert says the same nearly always", ["The advice of ", named(expert), " hardly ever changes. Is it a model that did not load?"]));
  }
  for (const expert of tenant.absent_experts) {
    found.push(warning(`absent ${expert}`, "An expert is often absent", [named(expert), " advises on fewer than four fifths of some group's cases. Error rates are made equal as if it were always there, so a gap may stay. If it has left, a window forgets it."]));
  }
  if (known(tenant.attainable) && known(tenant.tolerance) && tenant.attainable > tenant.tolerance) {
    found.push(warning("attainable", "These experts cannot reach the tolerance",
      [`Even the best mixture of their advice leaves a gap of ${rate(tenant.attainable)}, and ${rate(tenant.tolerance)} is tolerated. Better experts are needed, or more of them.`]));
  }
  if (tenant.learning) {
    found.push(el("p", { class: "muted learning", "data-key": "learning" }, `${plural(tenant.learning, "comparison")} of two groups ${tenant.learning === 1 ? "has" : "have"} too few labels to be tested yet.`));
  }
  return found;
}

const warning = (key, title, words) => el("article", { class: "warning", "data-key": key }, el("h2", null, el("span", { "aria-hidden": "true" }, "△ "), title), el("p", null, words));

const list = (names) => names.flatMap((name, index) => [index ? " and " : "", named(name)]);
