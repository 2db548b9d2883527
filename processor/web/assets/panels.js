// The parts of a tenant's view that are tables.

import { bandBar, scaleFor } from "./bars.js";
import { BarChart } from "./charts.js";
import { el, named, patch, setText, visible } from "./dom.js";
import { band, between, count, duration, known, plural, policy, rate, waiting } from "./format.js";

export function facts(tenant, gap, oldest) {
  const lifetime = tenant.windows[0];
  const shadows = Object.entries(lifetime?.shadows ?? {}).filter(([, by]) => known(by.equalized_odds));
  const found = [
    ["Gap now", tenant.one_sided.length ? "–" : rate(gap.value), tenant.one_sided.length ? "not valid: labels one-sided" : known(gap.lower) ? between(gap) : known(gap.value) ? "estimated: labels of positive decisions only" : "no band yet", tenant.one_sided.length ? "" : "lead"],
    ["Tolerance", rate(tenant.tolerance), known(tenant.tolerance) ? "above it an alert is raised" : "not watched"],
    ["Attainable", rate(tenant.attainable), "the least these experts allow"],
    ...shadows.map(([name, by]) => [policy(name), rate(by.equalized_odds), "would have had this gap"]),
    ["Regret", rate(tenant.regret), "per round, to the best expert"],
    ["Labels", count(lifetime?.labels ?? 0), `${count(tenant.tally.decisions ?? 0)} decisions`],
    ["Pending", count(tenant.pending), known(oldest) ? waiting(tenant, oldest) : "none waits"],
  ];
  return found.map(([name, value, note, kind]) =>
    el("div", { class: kind ?? "", "data-key": name }, el("dt", null, name), el("dd", null, el("b", null, value), el("small", null, note))));
}

// Errors by true label and group, on one scale: equal bars are what equalized odds asks for.
export function ratesTable(tenant, window) {
  const scale = scaleFor(window.rates.flatMap(({ rate: r }) => [r.upper < 0.999 ? r.upper : null, r.value]));
  const part = (label) => {
    const rows = window.rates.filter((cell) => cell.label === label);
    return el("tbody", { "data-key": label },
      el("tr", { class: "group-head" }, el("th", { scope: "colgroup", colspan: 5 }, "Truly ", named(label), wrong(tenant, label))),
      rows.map((cell) => el("tr", null,
        el("th", { scope: "row" }, named(cell.group)),
        el("td", { class: "number" }, el("b", null, rate(cell.rate.value))),
        el("td", { class: "bar-cell" }, bandBar(cell.rate, scale)),
        el("td", { class: "number range" }, band(cell.rate)),
        el("td", { class: "number" }, count(cell.n)))));
  };
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Error rates of each group" },
    el("table", { class: "plain rates" },
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "Group"), el("th", { scope: "col", class: "number" }, "Wrong"),
        el("th", { scope: "col", class: "bar-cell" }, `0 – ${scale}`), el("th", { scope: "col", class: "number range" }, "Band"), el("th", { scope: "col", class: "number" }, "Labels"))),
      tenant.labels.map(part)));
}

const wrong = (tenant, label) =>
  tenant.positive === null || tenant.labels.length !== 2 ? "" : label === tenant.positive ? " · false negatives" : " · false positives";

// q and π: for a case of a group, first an instance is drawn, then an expert of it.
export class Advice {
  constructor() {
    this.words = el("p", { class: "muted" });
    this.tables = el("div", { class: "advice" });
    this.box = el("div", null, this.words, this.tables);
  }

  draw(tenant) {
    const groups = Object.keys(tenant.weights);
    if (!groups.length) return setText(this.words, "Nothing has been decided yet.");
    const several = Object.keys(tenant.weights[groups[0]]).some((name) => name !== "all" && name !== "mixture");
    setText(this.words, several
      ? "For a case of a group one instance is drawn (there is one for each label), then an expert by the weights in its row."
      : "For a case of a group an expert is drawn by these weights.");
    return patch(this.tables, groups.map((group) => adviceTable(tenant, group, several)));
  }
}

function adviceTable(tenant, group, several) {
  // As configured. An object would put names that are numbers first.
  const instances = (several ? tenant.labels : Object.keys(tenant.weights[group])).map((name) => [name, tenant.weights[group][name] ?? {}]);
  const chance = (instance) => tenant.selection[group]?.[instance] ?? (several ? null : 1);
  const overall = tenant.experts.map((expert) => instances.reduce((sum, [instance, by]) => sum + (chance(instance) ?? 0) * (by[expert] ?? 0), 0));
  const heat = (value) => el("td", { class: "number heat", "data-heat": known(value) ? Math.round(value * 10) : 0 }, known(value) ? value.toFixed(2) : "–");
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Weights for group ${visible(group)}`, "data-key": group },
    el("table", { class: "plain" },
      el("caption", null, "Group ", named(group)),
      el("thead", null, el("tr", null, el("th", { scope: "col" }, several ? "Instance" : ""), several ? el("th", { scope: "col", class: "number" }, "drawn") : null,
        tenant.experts.map((expert) => el("th", { scope: "col", class: "number" }, named(expert))))),
      el("tbody", null,
        instances.map(([instance, by]) => el("tr", null, el("th", { scope: "row" }, several ? named(instance) : "Chance"),
          several ? heat(chance(instance)) : null, tenant.experts.map((expert) => heat(by[expert] ?? 0)))),
        several ? el("tr", { class: "total" }, el("th", { scope: "row" }, "In all"), el("td"), overall.map(heat)) : null)));
}

const TALLY = [
  ["labels_joined", "joined their decision"],
  ["labels_parked", "came before their request"],
  ["labels_duplicate", "repeated"],
  ["dead_contradicting-label", "contradicted an earlier one"],
  ["dead_unknown-label", "had a value nobody declared"],
  ["dead_unknown-decision", "found no decision"],
  ["dead_expired-decision", "came after the decision had expired"],
  ["dead_label-not-expected", "refused: the decision was not positive"],
  ["decisions_expired", "never came: the decision expired"],
];

const LEAST = 3; // a single bar tells little: at least so many beside it
const ALWAYS = 4; // the first of these are shown even if there are none

// Whether labels come, and how late.
export class Labels {
  constructor() {
    this.chart = new BarChart("small");
    this.words = el("p", { class: "muted" });
    this.tally = el("dl", { class: "tally" });
    this.box = el("div", { class: "labels" }, el("div", null, this.words, this.chart.box), this.tally);
  }

  draw(tenant, bounds) {
    const all = tenant.delays.reduce((sum, number) => sum + number, 0);
    const mean = all ? tenant.delay_sum / all : null;
    setText(this.words, all ? `How long labels took: ${duration(mean)} on average.` : "No label has joined a decision yet.");
    this.chart.box.hidden = !all;
    if (all) {
      const first = tenant.delays.findIndex(Boolean);
      const last = tenant.delays.findLastIndex(Boolean);
      const from = Math.max(0, Math.min(first, last - LEAST));
      const to = Math.max(last, from + LEAST) + 1;
      const names = [...bounds.map((end) => `≤ ${brief(end)}`), `> ${brief(bounds.at(-1))}`].slice(from, to);
      const values = tenant.delays.slice(from, to);
      const spoken = names.map((name, index) => `${name.replace("≤", "up to").replace(">", "over")}: ${plural(values[index], "label")}`).join(", ");
      this.chart.set(`Label delays: ${spoken}.`, names, values);
    }
    const note = (key) => (tenant.positive_only && key === "decisions_expired" ? " (negative ones get none)" : "");
    const shown = TALLY.filter(([key], index) => index < ALWAYS || tenant.tally[key]);
    patch(this.tally, shown.map(([key, words]) => el("div", { "data-key": key }, el("dt", null, words, note(key)), el("dd", null, count(tenant.tally[key] ?? 0)))));
  }
}

const brief = (seconds) => (seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${seconds / 60} min` : seconds < 86400 ? `${seconds / 3600} h` : `${seconds / 86400} d`);
