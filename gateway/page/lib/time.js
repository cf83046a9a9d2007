// Times in the reader's own zone and language.

import { h } from "./dom.js";

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** @param {string | null | undefined} source @returns {Date | null} */
function parsed(source) {
  const date = new Date(source ?? NaN);
  return Number.isNaN(date.getTime()) ? null : date;
}

/**
 * A `time` element: only the clock for today, else with the day; the whole time is its tooltip.
 * @param {string | null | undefined} source RFC 3339
 * @param {{ seconds?: boolean, clockOnly?: boolean }} [options]
 * @returns {HTMLElement}
 */
export function timeOf(source, { seconds = false, clockOnly = false } = {}) {
  const date = parsed(source);
  if (!date) return h("span", { class: "time" }, source ? String(source) : "–");
  const clock = (seconds ? SECONDS : CLOCK).format(date);
  const sameDay = date.toDateString() === new Date().toDateString();
  const shown = sameDay || clockOnly ? clock : `${SHORT_DAY.format(date)}, ${clock}`;
  return h("time", { class: "time", datetime: date.toISOString(), title: `${DAY.format(date)}, ${SECONDS.format(date)}` }, shown);
}

/**
 * The name of a day for a list of messages.
 * @param {string} source RFC 3339
 * @returns {string}
 */
export function dayOf(source) {
  const date = parsed(source);
  if (!date) return "";
  const today = new Date();
  const yesterday = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (date.toDateString() === today.toDateString()) return "Today";
  if (date.toDateString() === yesterday.toDateString()) return "Yesterday";
  return DAY.format(date);
}

/**
 * How long something took.
 * @param {number} microseconds
 * @returns {string}
 */
export function durationOf(microseconds) {
  if (microseconds < 1000) return `${microseconds} µs`;
  if (microseconds < 1e6) return `${(microseconds / 1000).toFixed(microseconds < 1e4 ? 1 : 0)} ms`;
  return `${(microseconds / 1e6).toFixed(1)} s`;
}
