// `displayChart`: a line or bar chart with its data as a table. Input: `{ "type"?: "line" | "bar", "title"?, "unit"?,
// "labels": [text], "series": [{ "name", "values": [number | null] }] }`, or `"data": [{ "label", "value" }]` for one series.

import { h, replace } from "../lib/dom.js";
import { summary } from "../lib/text.js";
import { drawChart } from "./chart_svg.js";

const MOST_SERIES = 8;
const MOST_LABELS = 500;
/** A width for drawing before the element has one, in pixels. */
const FIRST_WIDTH = 600;

/**
 * @typedef {{ type: "line" | "bar", title: string, unit: string, labels: string[], series: { name: string, values: (number | null)[] }[] }} Chart
 */

/** @type {import("./registry.js").ToolComponent} */
export function displayChart({ call }) {
  const chart = readChart(call.input);
  const holder = h("div", { class: "chart-holder" });
  let width = 0;
  const draw = (next) => {
    if (next < 80 || next === width) return;
    width = next;
    replace(holder, drawChart(chart, width));
  };
  draw(FIRST_WIDTH);
  // Text in a scaled picture would be too small on a phone, so the chart is drawn for the width that it has.
  new ResizeObserver(([{ contentRect }]) => draw(Math.floor(contentRect.width))).observe(holder);
  return h("figure", { class: "chart", "data-testid": "chart" },
    chart.title ? h("figcaption", { class: "tool-title", dir: "auto" }, chart.title) : null,
    chart.series.length > 1 ? legend(chart) : null,
    holder,
    h("details", { class: "chart-data" }, h("summary", {}, "Show the data as a table"), h("div", { class: "scroll-x", tabindex: "0", role: "group", "aria-label": "Data of the chart" }, table(chart))));
}

/**
 * Reads the input of a chart.
 * @param {any} input
 * @returns {Chart}
 * @throws {TypeError} if it is not a chart, with the reason
 */
export function readChart(input) {
  const { type = "line", title = "", unit = "", data } = input ?? {};
  if (type !== "line" && type !== "bar") throw new TypeError('the type of a chart is "line" or "bar"');
  const labels = data === undefined ? input?.labels : list(data, "data").map((point) => point?.label);
  const series = data === undefined ? input?.series : [{ name: title || "Value", values: data.map((point) => point?.value) }];
  list(labels, "labels");
  list(series, "series");
  if (labels.length === 0 || series.length === 0) throw new TypeError("the chart has no data");
  if (labels.length > MOST_LABELS) throw new TypeError(`the chart has more than ${MOST_LABELS} labels`);
  if (series.length > MOST_SERIES) throw new TypeError(`the chart has more than ${MOST_SERIES} series`);
  return { type, title: String(title), unit: String(unit), labels: labels.map((label) => String(label ?? "")), series: series.map((one, index) => readSeries(one, index, labels.length)) };
}

function readSeries(one, index, length) {
  const name = String(one?.name ?? `Series ${index + 1}`);
  const values = list(one?.values, `values of ${name}`);
  if (values.length !== length) throw new TypeError(`${name} has ${values.length} values for ${length} labels`);
  for (const value of values) {
    if (value !== null && !(typeof value === "number" && Number.isFinite(value) && Math.abs(value) < 1e300)) throw new TypeError(`${name} has a value that is not a number`);
  }
  return { name, values };
}

function list(value, name) {
  if (!Array.isArray(value)) throw new TypeError(`the chart has no list of ${name}`);
  return value;
}

/** @param {Chart} chart */
function legend({ series }) {
  return h("ul", { class: "legend" }, series.map(({ name }, index) => h("li", { dir: "auto" }, h("span", { class: `swatch series-${index}`, "aria-hidden": "true" }), summary(name, 60))));
}

/** @param {Chart} chart */
function table({ title, unit, labels, series }) {
  return h("table", {},
    h("caption", { class: "unseen" }, title || "Data of the chart"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Label"), series.map(({ name }) => h("th", { scope: "col", class: "number" }, unit ? `${name} (${unit})` : name)))),
    h("tbody", {}, labels.map((label, row) => h("tr", {}, h("th", { scope: "row" }, label), series.map(({ values }) => h("td", { class: "number" }, values[row] === null ? "–" : values[row].toLocaleString(undefined, { maximumFractionDigits: 6 })))))));
}
