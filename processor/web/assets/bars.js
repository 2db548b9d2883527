// A figure with its band as one small bar, for tables.

import { known } from "./format.js";
import { svg } from "./dom.js";

const WIDTH = 200;
const HEIGHT = 20;

// The end of a common scale for many bars: one that people read easily.
export function scaleFor(values) {
  const most = Math.max(0.1, ...values.filter(known));
  return [0.1, 0.2, 0.3, 0.5, 0.75].find((end) => most <= end) ?? 1;
}

// The text stands beside it, so the picture itself is hidden from screen readers.
export function bandBar({ value, lower, upper }, scale, { tolerance, attainable, kind = "" } = {}) {
  const at = (x) => (Math.min(Math.max(x, 0), scale) / scale) * WIDTH;
  const parts = [svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 })];
  if (known(lower) && known(upper)) {
    const width = Math.max(at(upper) - at(lower), 2);
    parts.push(svg("rect", { class: "band", x: at(lower), width, y: 6, height: HEIGHT - 12, rx: 3 }));
  }
  if (known(attainable)) parts.push(svg("path", { class: "attainable", d: `M${at(attainable)} 3v14` }));
  if (known(tolerance)) parts.push(svg("line", { class: "tolerance", x1: at(tolerance), x2: at(tolerance), y1: 1, y2: HEIGHT - 1 }));
  if (known(value)) parts.push(svg("circle", { class: "value", cx: at(value), cy: HEIGHT / 2, r: 4 }));
  const attributes = { class: `bar ${kind}`, viewBox: `-5 0 ${WIDTH + 10} ${HEIGHT}`, "aria-hidden": "true", focusable: "false" };
  return svg("svg", attributes, ...parts);
}
