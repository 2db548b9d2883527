// All tenants at a glance: who needs attention, and how far each gap is from what is tolerated.

import { bandBar, scaleFor } from "./bars.js";
import { ask } from "./connection.js";
import { el, named, patch, setText, svg, visible } from "./dom.js";
import { atMost, band, count, known, plural, policy, rate, waiting } from "./format.js";
import { standing, stateOf, troubleOf, unattainable, verdict } from "./state.js";

const RESORT = 10000; // milliseconds: rows that jump every second cannot be read
const FILTERS = {
  all: ["All", () => true],
  attention: ["Needs attention", (row) => row.state.level >= 2],
  unsure: ["Not judged yet", (row) => row.state.level === 1],
  unattainable: ["Not attainable", (row) => unattainable(row)],
};

export class Overview {
  constructor(main, told) {
    this.told = told;
    this.order = [];
    this.sorted = 0;
    this.rate = null;
    this.last = null;
    this.head = el("section", { class: "verdict", "aria-labelledby": "verdict" });
    this.title = el("h1", { id: "verdict" }, "Reading the figures…");
    this.detail = el("p", { class: "muted" });
    this.announced = el("p", { class: "unseen", role: "status" });
    this.strip = el("dl", { class: "strip" });
    this.trouble = el("ul", { class: "trouble" });
    this.search = el("input", { type: "search", id: "search", placeholder: "Find a tenant", autocomplete: "off", spellcheck: "false" });
    this.filter = el("select", { id: "filter" }, Object.entries(FILTERS).map(([key, [label]]) => el("option", { value: key }, label)));
    this.counted = el("p", { class: "muted", role: "status" });
    this.body = el("tbody", { role: "rowgroup" });
    this.scale = el("span", { class: "scale" });
    this.head.append(this.title, this.detail, this.announced, this.strip, this.trouble);
    main.replaceChildren(this.head, this.tools(), this.table(), key());
    this.search.addEventListener("input", () => this.draw(true));
    this.filter.addEventListener("change", () => this.draw(true));
    this.body.addEventListener("click", (event) => {
      // The whole row leads to the tenant; the link in it is what a keyboard uses.
      if (event.target.closest("a") || String(getSelection())) return;
      event.target.closest("tr")?.querySelector("a")?.click();
    });
  }

  tools() {
    return el("form", { class: "tools", role: "search", "aria-label": "Tenants" },
      el("label", { class: "unseen", for: "search" }, "Find a tenant"), this.search,
      el("label", { class: "unseen", for: "filter" }, "Which tenants"), this.filter, this.counted);
  }

  table() {
    const head = (text, extra) => el("th", { scope: "col", role: "columnheader", ...extra }, text);
    return el("table", { class: "tenants", role: "table", "aria-label": "Tenants, those with alerts first" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
        head("Tenant"), head("State"), head(el("div", { class: "gap-cell" }, el("span", null, "Gap now"), this.scale, el("span", { class: "range" }, "95 % band"))),
        head("Attainable", { class: "number", title: "The least gap any mixture of these experts can have" }),
        head("Labels", { class: "number" }), head("Pending", { class: "number" }),
        head("Lag", { class: "number", title: "Records of its partition not processed yet" }))),
      this.body);
  }

  async turn(signal) {
    const data = await ask("api/overview", signal);
    this.note(data);
    this.data = data;
    const lags = new Map(data.partitions.map((partition) => [partition.number, behind(partition)]));
    this.rows = data.tenants.map((tenant) => ({ ...tenant, lag: lags.get(tenant.partition), state: stateOf(tenant, tenant.gap) }));
    this.draw(false);
  }

  // Decisions per second, from two answers.
  note(data) {
    const now = { at: performance.now(), decisions: data.totals.decisions ?? 0 };
    if (this.last && now.at - this.last.at > 500) {
      const pace = ((now.decisions - this.last.decisions) * 1000) / (now.at - this.last.at);
      this.rate = this.rate === null ? pace : this.rate * 0.7 + pace * 0.3;
    }
    this.last = now;
  }

  draw(asked) {
    if (!this.rows) return;
    const said = verdict(this.rows, this.data.partitions);
    this.head.dataset.level = said.level;
    setText(this.title, said.text);
    setText(this.detail, said.detail);
    setText(this.announced, `${said.text}. ${said.detail}`);
    const still = standing(this.data.partitions);
    this.told({ version: this.data.version, still, title: said.level === 3 || still ? `▲ ${said.text} · G-FORCE` : "G-FORCE" });
    patch(this.strip, this.health());
    patch(this.trouble, this.data.partitions.filter((p) => p.state !== "ready").map((p) =>
      el("li", { "data-key": `p${p.number}` }, troubleOf(p))));
    const rows = this.arranged(asked);
    const scale = scaleFor(rows.flatMap(({ gap, tolerance }) => [gap.upper, gap.value, tolerance]));
    patch(this.scale, [el("span", null, "0"), el("span", { class: "unseen" }, " to "), el("span", null, String(scale))]);
    const few = rows.length < this.rows.length ? `${count(rows.length)} of ` : "";
    const more = this.data.unlisted ? ` · ${count(this.data.unlisted)} more not listed (metrics.max_tenants)` : "";
    setText(this.counted, `${few}${plural(this.rows.length, "tenant")}${more}`);
    patch(this.body, rows.length ? rows.map((row) => line(row, scale)) : [nothing(this.rows.length)]);
  }

  health() {
    const { partitions, ready } = this.data;
    const well = partitions.filter((p) => p.state === "ready").length;
    const oldest = Math.max(...this.rows.filter((row) => row.awaited === row.pending).map((row) => row.oldest_pending).filter(known));
    const facts = [
      ["Processor", ready && well === partitions.length ? "Ready" : "Not ready"],
      ["Partitions", `${well} of ${partitions.length} ready`],
      ["Decisions", `${count(this.data.totals.decisions ?? 0)} since its start${this.rate >= 0.5 ? ` · ${count(Math.round(this.rate))}/s` : ""}`],
      ["Waiting for labels", `${count(sum(this.rows.map((row) => row.awaited)))}${Number.isFinite(oldest) ? ` · oldest ${atMost(oldest)}` : ""}`],
      ["Lag", count(sum(partitions.map(behind)))],
    ];
    return facts.map(([name, value]) => el("div", { "data-key": name }, el("dt", null, name), el("dd", null, value)));
  }

  // Alerts first, then the widest gap; rearranged now and then, and not under somebody's finger.
  arranged(asked) {
    const now = performance.now();
    const alerting = this.rows.map((row) => `${row.state.level}${row.name}`).sort().join("\n");
    const held = this.body.matches(":hover, :focus-within");
    if (asked || alerting !== this.alerting || (now - this.sorted > RESORT && !held)) {
      this.order = [...this.rows].sort(before).map((row) => row.name);
      this.sorted = now;
      this.alerting = alerting;
    }
    const place = new Map(this.order.map((name, index) => [name, index]));
    const wanted = this.search.value.trim().toLowerCase();
    const [, passes] = FILTERS[this.filter.value];
    return this.rows
      .filter((row) => passes(row) && [row.name, visible(row.name)].some((name) => name.toLowerCase().includes(wanted)))
      .sort((a, b) => place.get(a.name) - place.get(b.name));
  }
}

const sum = (values) => values.filter(known).reduce((a, b) => a + b, 0);

// Records of a partition that are not processed yet; null if that is not known.
const behind = ({ lag }) => (Object.keys(lag).length ? sum(Object.values(lag)) : null);

const before = (a, b) =>
  b.state.level - a.state.level || (b.gap.value ?? -1) - (a.gap.value ?? -1) || (a.name < b.name ? -1 : 1);

function line(row, scale) {
  const cell = (label, attributes, ...children) => el("td", { role: "cell", "data-label": label, ...attributes }, ...children);
  const number = { class: "number" };
  const gap = row.one_sided ? {} : row.gap; // a figure that is not valid is not shown: it would be remembered
  return el("tr", { role: "row", "data-key": row.name, "data-level": row.state.level },
    el("th", { scope: "row", role: "rowheader" },
      el("a", { href: `#/tenant/${encodeURIComponent(row.name)}` }, named(row.name)), el("small", null, policy(row.policy))),
    cell("State", { class: "state" }, badge(row.state), unattainable(row) ? el("small", null, "not attainable") : null),
    cell("Gap now", { class: "gap" }, el("div", { class: "gap-cell" }, el("span", { class: "figure" }, rate(gap.value)),
      bandBar(gap, scale, { tolerance: row.tolerance, attainable: row.attainable, kind: kindOf(row) }),
      el("small", { class: "range" }, row.one_sided ? "not valid" : band(gap)))),
    cell("Attainable", number, rate(row.attainable)),
    cell("Labels", number, count(row.labels)),
    cell("Pending", number, count(row.pending), known(row.oldest_pending) && row.pending ? el("small", null, waiting(row, row.oldest_pending)) : null),
    cell("Lag", number, count(row.lag)));
}

const kindOf = ({ gap, tolerance }) => (known(gap.lower) && gap.lower > (tolerance ?? 1) ? "above" : "");

const key = () =>
  el("p", { class: "key muted", "aria-hidden": "true" },
    el("span", null, mark("circle", { class: "value", cx: 10, cy: 10, r: 4 }), "gap"),
    el("span", null, mark("rect", { class: "band", x: 1, y: 6, width: 18, height: 8, rx: 3 }), "95 % band"),
    el("span", null, mark("line", { class: "tolerance", x1: 10, x2: 10, y1: 1, y2: 19 }), "tolerance"),
    el("span", null, mark("path", { class: "attainable", d: "M10 3v14" }), "attainable"));

const mark = (tag, attributes) => svg("svg", { class: "bar mark", viewBox: "0 0 20 20", focusable: "false" }, svg(tag, attributes));

export const badge = (state) => el("span", { class: "badge", "data-level": state.level }, el("span", { "aria-hidden": "true" }, state.sign), " ", state.word);

const nothing = (all) =>
  el("tr", { role: "row" }, el("td", { role: "cell", colspan: 7, class: "empty" }, all ? "No tenant like that." : "No tenants yet. They appear here with their first request."));
