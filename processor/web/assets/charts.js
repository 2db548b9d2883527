// uPlot, dressed for this page: colours from the style sheet, our own legend, and every chart also as a table.

import { el, patch, setText, svg, visible } from "./dom.js";
import { axisTime, known, moment, rate } from "./format.js";

/* global uPlot */

const HEIGHT = { small: 200, large: 280 };
const ROWS = 12; // of the table beside a chart

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const remWidth = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

class Chart {
  constructor(size) {
    this.size = size;
    this.host = el("div", { class: "chart", role: "img" });
    this.box = el("figure", { class: "chart-box" }, this.host);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.host);
  }

  height = () => Math.round((HEIGHT[this.size] * remWidth()) / 16);

  resize() {
    const width = this.host.clientWidth;
    if (this.plot && width) this.plot.setSize({ width, height: this.height() });
    else if (this.wanted && width) this.wanted();
  }

  make(options, data) {
    this.plot?.destroy();
    this.plot = null;
    const width = this.host.clientWidth;
    const rem = Math.round(remWidth() / 2);
    if (!width) return; // not on the page yet; the observer calls again
    this.plot = new uPlot({ width, height: this.height(), legend: { show: false }, padding: [rem, rem * 3.5, 0, 0], ...options }, data, this.host);
  }

  axis(extra) {
    const font = `${Math.round(remWidth() * 0.75)}px ${css("--font")}`;
    return { stroke: css("--muted"), font, grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, ...extra };
  }

  repaint() {
    this.plot?.destroy();
    this.plot = null;
    this.wanted?.();
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.wanted = null;
  }
}

// Lines over time. A line: { key, name, values, colour (of the style sheet), dash, width, lower, upper }.
export class TimeChart extends Chart {
  constructor(size) {
    super(size);
    this.legend = el("ul", { class: "legend" });
    this.at = el("p", { class: "chart-time muted", "aria-hidden": "true" }, "now");
    this.table = el("table", { class: "plain" });
    this.details = el("details", null, el("summary", null, "As a table"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The chart as a table" }, this.table));
    this.details.addEventListener("toggle", () => this.tabulate());
    this.box.prepend(el("div", { class: "legend-row" }, this.legend, this.at));
    this.box.append(this.details);
  }

  // `times` in milliseconds; `top` is the end of the scale.
  set(label, times, lines, top) {
    this.times = times;
    this.lines = lines;
    this.top = top;
    if (this.host.getAttribute("aria-label") !== label) this.host.setAttribute("aria-label", label);
    const shape = lines.map((line) => `${line.key} ${Boolean(line.lower)}`).join("\n");
    this.wanted = () => this.build();
    if (!this.plot || shape !== this.shape) {
      this.shape = shape;
      this.build();
    } else this.plot.setData(this.columns());
    this.name(this.plot?.cursor.idx ?? null);
    this.tabulate();
  }

  columns() {
    const columns = [this.times.map((time) => time / 1000)];
    for (const line of this.lines) {
      if (line.lower) columns.push(line.upper, line.lower);
      columns.push(line.values);
    }
    return columns;
  }

  build() {
    const series = [{}];
    const bands = [];
    const few = (u) => u.data[0].length < 3;
    for (const line of this.lines) {
      const stroke = css(line.colour);
      if (line.lower) {
        bands.push({ series: [series.length, series.length + 1], fill: css(`${line.colour}-band`) });
        series.push({ stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } });
      }
      series.push({ stroke, width: line.width ?? 1.5, dash: line.dash, spanGaps: true, points: { show: few, size: 6 } });
    }
    const rem = remWidth();
    this.make({
      series,
      bands,
      cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false, y: false } },
      scales: { x: { time: true }, y: { range: () => [0, this.top] } },
      axes: [
        this.axis({ space: rem * 5, size: rem * 1.9, values: (_, splits, __, ___, step) => onceEach(splits.map((at) => axisTime(at, step))) }),
        this.axis({ space: rem * 2, size: rem * 3, values: (_, splits) => splits.map((value) => value.toFixed(this.top > 0.35 ? 1 : 2)) }),
      ],
      hooks: { setCursor: [(u) => this.name(u.cursor.idx)] },
    }, this.columns());
  }

  // The legend says the values now, or those under the pointer.
  name(index) {
    const last = this.times.length - 1;
    const at = index ?? last;
    setText(this.at, index === null || index === undefined || at >= last ? "now" : moment(this.times[at]));
    patch(this.legend, this.lines.map((line) =>
      el("li", { "data-key": line.key }, swatch(line), el("span", null, el("bdi", null, line.name)), el("b", null, rate(line.values[at])))));
  }

  tabulate() {
    if (!this.details.open || !this.times) return;
    const step = Math.max(1, Math.ceil(this.times.length / ROWS));
    const rows = this.times.map((_, index) => index).filter((index) => (this.times.length - 1 - index) % step === 0).reverse();
    patch(this.table, [
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "Time"), this.lines.map((line) => el("th", { scope: "col", class: "number" }, el("bdi", null, line.name))))),
      el("tbody", null, rows.map((index) => el("tr", null, el("th", { scope: "row" }, moment(this.times[index])),
        this.lines.map((line) => el("td", { class: "number" }, rate(line.values[index])))))),
    ]);
  }
}

// Ticks closer than what the words tell apart: the first of them has the word.
const onceEach = (words) => words.map((word, index) => (word === words[index - 1] ? "" : word));

function swatch(line) {
  const stroke = `var(${line.colour})`;
  return svg("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true", focusable: "false" },
    svg("line", { x1: 1, x2: 23, y1: 5, y2: 5, stroke, "stroke-width": (line.width ?? 1.5) + 0.5, "stroke-dasharray": line.dash?.join(" ") }));
}

// Counts in named buckets.
export class BarChart extends Chart {
  set(label, names, values) {
    if (this.host.getAttribute("aria-label") !== label) this.host.setAttribute("aria-label", label);
    const data = [names.map((_, index) => index), values];
    const shape = names.join("\n");
    this.wanted = () => this.build(names.map(visible), data);
    if (!this.plot || shape !== this.shape) {
      this.shape = shape;
      this.wanted();
    } else this.plot.setData(data);
  }

  build(names, data) {
    const rem = remWidth();
    this.make({
      series: [{}, { stroke: css("--in-force"), fill: css("--in-force-band"), width: 1, paths: uPlot.paths.bars({ size: [0.8, rem * 5] }), points: { show: false } }],
      cursor: { show: false },
      scales: { x: { time: false, range: () => [-0.6, names.length - 0.4] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.08)] } },
      axes: [
        this.axis({ grid: { show: false }, size: rem * 1.9, splits: () => data[0], values: (u, splits) => thinned(u, splits, names, rem) }),
        this.axis({ space: rem * 2, size: rem * 3.5, values: (_, splits) => splits.map((value) => (known(value) && value === Math.round(value) ? String(value) : "")) }),
      ],
    }, data);
  }
}

const thinned = (u, splits, names, rem) => {
  const every = Math.max(1, Math.ceil((names.length * rem * 3.2) / (u.bbox.width / devicePixelRatio)));
  return splits.map((index) => (index % every === 0 ? names[index] : ""));
};
