// One tenant: is the gap real, who pays for it, whose advice is taken, and do the labels come.

import { ask, NotHere } from "./connection.js";
import { TimeChart } from "./charts.js";
import { el, named, patch, setText, visible } from "./dom.js";
import { between, known, METRICS, policy, rate, windowName } from "./format.js";
import { badge } from "./overview.js";
import { gapSentence, standing, stateOf } from "./state.js";
import { Alerts, standsStill } from "./alerts.js";
import { Advice, Labels, ratesTable, facts } from "./panels.js";

const RANGES = { "10m": ["10 minutes", 600], "1d": ["1 day", 86400], all: ["All", Infinity] };
const REREAD = 600000; // milliseconds: the processor thins its history, so we read it anew now and then
const GROUP_COLOURS = 6;
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];

export class Tenant {
  constructor(main, name, choices, told) {
    this.name = name;
    this.told = told;
    this.choices = choices;
    this.history = null;
    this.title = el("h1", { class: "name" }, named(name));
    this.state = el("p", { class: "state-line" });
    this.announced = el("p", { class: "unseen", role: "status" });
    this.alerts = new Alerts();
    this.facts = el("dl", { class: "facts" });
    this.metrics = this.chooser("metric", "Metric");
    this.windows = this.chooser("window", "Window");
    this.ranges = this.chooser("range", "Time shown");
    this.gap = new TimeChart("large");
    this.gapWords = el("p", { class: "muted" });
    this.groups = new TimeChart("small");
    this.rates = el("div");
    this.advice = new Advice();
    this.labels = new Labels();
    main.replaceChildren(
      el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "← All tenants")),
      el("header", { class: "tenant-head" }, this.title, this.state, this.announced),
      this.alerts.box,
      this.facts,
      panel("Gap over time", "wide", el("div", { class: "choosers" }, this.metrics, this.ranges), this.gapWords, this.gap.box),
      panel("Error rates of each group", "", el("div", { class: "choosers" }, this.windows), this.rates),
      panel("Error rates over time", "", el("p", { class: "muted" }, "A gap can also close by harming the group that was better off. Then a line rises here."), this.groups.box),
      panel("Whose advice is taken", "wide", this.advice.box),
      panel("Labels", "wide", this.labels.box),
    );
  }

  chooser(key, legend) {
    const box = el("fieldset", { class: "chooser" }, el("legend", null, legend));
    box.addEventListener("change", (event) => {
      this.choices.set(key, event.target.value);
      history.replaceState(null, "", `#/tenant/${encodeURIComponent(this.name)}?${this.choices}`);
      this.draw();
    });
    return box;
  }

  async turn(signal) {
    const name = encodeURIComponent(this.name);
    const [data] = await Promise.all([ask(`api/tenant?name=${name}`, signal), this.read(name, signal)]);
    this.data = data;
    this.draw();
  }

  // All of the history at first, then only what is new.
  async read(name, signal) {
    const anew = !this.history || performance.now() - this.readAt > REREAD;
    const last = anew ? 0 : this.history.times.at(-1) ?? 0;
    try {
      const more = await ask(`api/history?name=${name}&since=${last}`, signal);
      if (anew) this.readAt = performance.now();
      this.history = anew ? more : joined(this.history, more);
    } catch (error) {
      if (!(error instanceof NotHere)) throw error; // nothing sampled yet
    }
  }

  draw() {
    if (!this.data) return;
    const { figures, partition } = this.data;
    const lifetime = figures.windows[0];
    const gap = lifetime?.gaps.equalized_odds ?? {};
    const state = stateOf(figures, gap);
    const still = standing(partition ? [partition] : []);
    const first = still ? `▲ ${still.word} · ` : state.alert ? "▲ " : "";
    this.told({ version: this.data.version, still, title: `${first}${visible(this.name)} · G-FORCE` });
    patch(this.state, [badge(state), el("span", { class: "muted" }, ` ${policy(figures.policy)} · partition ${figures.partition}`)]);
    setText(this.announced, state.word);
    this.alerts.draw(figures, still ? standsStill(partition, still) : null);
    patch(this.facts, facts(figures, gap, this.data.oldest_pending));
    if (lifetime) {
      const metric = chosen(this.metrics, "metric", Object.keys(METRICS).filter((key) => lifetime.gaps[key]), (key) => METRICS[key].short, this.choices);
      const range = chosen(this.ranges, "range", Object.keys(RANGES), (key) => RANGES[key][0], this.choices);
      const window = chosen(this.windows, "window", figures.windows.map((one) => one.window), windowName, this.choices);
      this.drawGap(figures, metric, RANGES[range][1]);
      this.drawGroups(RANGES[range][1]);
      patch(this.rates, [ratesTable(figures, figures.windows.find((one) => one.window === window))]);
    }
    this.advice.draw(figures);
    this.labels.draw(figures, this.data.delay_bounds);
  }

  drawGap(figures, metric, range) {
    const now = figures.windows[0].gaps[metric];
    setText(this.gapWords, `${METRICS[metric].long}, over the lifetime. Now ${rate(now.value)}${known(now.lower) ? `, ${between(now)}` : ""}.`);
    const past = this.history?.gaps[metric];
    if (!past) return;
    const { times, cut } = within(this.history.times, range);
    const flat = (value) => times.map(() => value);
    const lines = [
      { key: "in-force", name: `${policy(figures.policy)}, in force`, values: cut(past.value), lower: cut(past.lower), upper: cut(past.upper), colour: "--in-force", width: 2.5 },
      ...Object.entries(this.history.shadows).filter(([, by]) => by[metric]).map(([name, by], index) =>
        ({ key: `shadow ${name}`, name: `${policy(name)}, in shadow`, values: cut(by[metric]), colour: `--shadow-${index % 3}`, dash: DASHES[1 + (index % 3)] })),
    ];
    if (known(figures.tolerance)) lines.push({ key: "tolerance", name: "Tolerance", values: flat(figures.tolerance), colour: "--tolerance", dash: [4, 4], width: 1 });
    if (metric === "equalized_odds" && known(figures.attainable)) {
      lines.push({ key: "attainable", name: "Attainable now", values: flat(figures.attainable), colour: "--attainable", dash: [1, 4], width: 2 });
    }
    const top = nice(Math.max(...lines.flatMap((line) => settled(line.values)), lines[0].upper.at(-1) ?? 0));
    this.gap.set(`Gap over time: ${spoken(lines[0])}; ${gapSentence(now, figures.tolerance)}.`, times, lines, top);
  }

  drawGroups(range) {
    if (!this.history || !Object.keys(this.history.rates).length) return;
    const { times, cut } = within(this.history.times, range);
    const lines = Object.entries(this.history.rates).map(([group, values], index) => ({
      key: group, name: visible(group), values: cut(values), colour: `--group-${index % GROUP_COLOURS}`,
      dash: DASHES[Math.floor(index / GROUP_COLOURS) % DASHES.length], width: 2,
    }));
    const words = lines.map((line) => `${line.name} ${spoken(line)}`).join("; ");
    this.groups.set(`Error rate of each group over time: ${words}.`, times, lines, nice(Math.max(...lines.flatMap((line) => settled(line.values)))));
  }

  repaint() {
    for (const chart of [this.gap, this.groups, this.labels.chart]) chart.repaint();
  }

  close() {
    for (const chart of [this.gap, this.groups, this.labels.chart]) chart.close();
  }
}

const panel = (title, kind, ...children) => {
  const id = `panel-${title.toLowerCase().replaceAll(" ", "-")}`;
  return el("section", { class: `panel ${kind}`, "aria-labelledby": id }, el("h2", { id }, title), ...children);
};

// A row of radio buttons; what the address says is chosen, if it exists. They are made once: somebody may be on them.
function chosen(box, key, options, words, choices) {
  const wanted = options.includes(choices.get(key)) ? choices.get(key) : options.includes("equalized_odds") ? "equalized_odds" : options[0];
  if (box.dataset.options !== options.join()) {
    box.dataset.options = options.join();
    box.replaceChildren(box.firstChild, ...options.map((option) => {
      const input = el("input", { type: "radio", name: key, value: option });
      input.checked = option === wanted;
      return el("label", null, input, el("span", null, words(option)));
    }));
  }
  return wanted;
}

const extended = (old, more, length) => [...old, ...(more ?? Array(length).fill(null))];

function joined(past, more) {
  const grown = more.times.length;
  const before = past.times.length;
  const merge = (old, fresh) => extended(old ?? Array(before).fill(null), fresh, grown);
  const each = (a, b, how) => Object.fromEntries([...new Set([...Object.keys(a ?? {}), ...Object.keys(b ?? {})])].map((key) => [key, how(a?.[key], b?.[key])]));
  if (!grown) return past;
  return {
    times: merge(past.times, more.times),
    gaps: each(past.gaps, more.gaps, (a, b) => ({ value: merge(a?.value, b?.value), lower: merge(a?.lower, b?.lower), upper: merge(a?.upper, b?.upper) })),
    shadows: each(past.shadows, more.shadows, (a, b) => each(a, b, merge)),
    rates: each(past.rates, more.rates, merge),
  };
}

function within(times, seconds) {
  const start = Number.isFinite(seconds) ? times.findIndex((time) => time >= times.at(-1) - seconds * 1000) : 0;
  const from = Math.max(start, 0);
  return { times: times.slice(from), cut: (values) => values.slice(from) };
}

// The first figures after a start jump about and would flatten the rest of the picture.
const settled = (values) => {
  const seen = values.filter(known);
  return seen.length > 20 ? seen.slice(Math.floor(seen.length / 10)) : seen;
};

const nice = (top) => [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8].find((end) => top * 1.05 <= end) ?? 1;

function spoken(line) {
  const seen = line.values.filter(known);
  return seen.length ? `from ${rate(seen[0])} to ${rate(seen.at(-1))}, at most ${rate(Math.max(...seen))}` : "nothing yet";
}
