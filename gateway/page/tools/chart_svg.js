// Draws a chart as SVG for a given width: axes with round numbers, lines with points of their own shape, or grouped bars.

import { svg } from "../lib/dom.js";
import { summary } from "../lib/text.js";

const HEIGHT = 240;
const TOP = 12;
const BOTTOM = 30;
/** The width of one character of a label, in pixels. */
const CHARACTER = 6.6;
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 2 });
const PLAIN = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });

/**
 * Draws a chart.
 * @param {import("./display_chart.js").Chart} chart
 * @param {number} width in pixels
 * @returns {SVGElement}
 */
export function drawChart(chart, width) {
  const scale = scaleOf(chart);
  const tickTexts = scale.ticks.map((tick) => COMPACT.format(tick));
  const left = Math.ceil(Math.max(...tickTexts.map(({ length }) => length)) * CHARACTER) + 12;
  const area = { left, right: width - 10, top: TOP, bottom: HEIGHT - BOTTOM };
  const y = (value) => area.bottom - ((value - scale.low) / (scale.high - scale.low)) * (area.bottom - area.top);
  const step = (area.right - area.left) / chart.labels.length;
  const x = (index) => area.left + step * (index + 0.5);
  return svg("svg", { class: "chart-picture", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": describe(chart) },
    scale.ticks.map((tick, index) => [
      svg("line", { class: tick === 0 ? "axis" : "grid", x1: area.left, x2: area.right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: area.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickTexts[index]),
    ]),
    labelsOf(chart, area, step, x),
    chart.type === "bar" ? bars(chart, step, x, y) : lines(chart, x, y));
}

/** The words for a person who does not see the picture; the table has the numbers. */
function describe({ type, title, unit, labels, series }) {
  const parts = series.map(({ name, values }) => {
    const numbers = values.filter((value) => value !== null);
    if (numbers.length === 0) return `${name}: no values`;
    return `${name} from ${PLAIN.format(Math.min(...numbers))} to ${PLAIN.format(Math.max(...numbers))}`;
  });
  const kind = type === "bar" ? "Bar chart" : "Line chart";
  return summary(`${kind}${title ? `: ${title}` : ""}${unit ? `, in ${unit}` : ""}. ${labels.length} labels. ${parts.join("; ")}.`, 400);
}

/** Round ticks that hold all values, and zero for bars. */
function scaleOf({ type, series }) {
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (values.length === 0) [low, high] = [0, 1];
  if (type === "bar" || (low > 0 && low < high / 2)) low = Math.min(low, 0);
  if (type === "bar") high = Math.max(high, 0);
  if (low === high) {
    const room = Math.abs(low) / 2 || 1;
    [low, high] = [low - room, high + room];
  }
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
  const first = Math.floor(low / unit);
  const last = Math.ceil(high / unit);
  const ticks = Array.from({ length: last - first + 1 }, (_, index) => (first + index) * unit);
  return { low: first * unit, high: last * unit, ticks };
}

function labelsOf({ labels }, area, step, x) {
  const longest = Math.min(14, Math.max(...labels.map(({ length }) => length)));
  const every = Math.max(1, Math.ceil(((longest + 1) * CHARACTER) / step));
  return labels.map((label, index) => index % every === 0
    ? svg("text", { class: "tick", x: x(index), y: area.bottom + 20, "text-anchor": "middle" }, summary(label, 13)) : null);
}

function titleOf(name, label, value) {
  return svg("title", {}, `${name}, ${label}: ${PLAIN.format(value)}`);
}

function bars({ labels, series }, step, x, y) {
  const width = Math.max(1, Math.min(48, (step * 0.72) / series.length));
  return series.map(({ name, values }, number) => values.map((value, index) => value === null ? null
    : svg("rect", {
      class: `bar series-${number}`, rx: Math.min(3, width / 4), width: Math.max(1, width - (series.length > 1 ? 2 : 0)),
      x: x(index) - (width * series.length) / 2 + width * number,
      y: Math.min(y(value), y(0)), height: Math.max(1, Math.abs(y(value) - y(0))),
    }, titleOf(name, labels[index], value))));
}

function lines({ labels, series }, x, y) {
  const shows = labels.length <= 60;
  return series.map(({ name, values }, number) => {
    let path = "";
    values.forEach((value, index) => {
      // A missing value leaves a gap.
      if (value !== null) path += `${index === 0 || values[index - 1] === null ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    });
    const points = values.map((value, index) => value !== null && (shows || (values[index - 1] ?? null) === null)
      ? svg("path", { class: `point series-${number}`, d: pointShape(number, x(index), y(value)) }, titleOf(name, labels[index], value)) : null);
    return [svg("path", { class: `line series-${number}`, d: path }), points];
  });
}

/** Series differ by shape too, not by colour alone. */
function pointShape(number, x, y) {
  switch (number % 4) {
    case 0: return `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z`;
    case 1: return `M${x - 3.2} ${y - 3.2}h6.4v6.4h-6.4Z`;
    case 2: return `M${x} ${y - 4.4}l4.4 4.4l-4.4 4.4l-4.4 -4.4Z`;
    default: return `M${x} ${y - 4}l4.2 7.4h-8.4Z`;
  }
}
