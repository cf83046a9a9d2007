// The view of runs: all that the person may see, the newest first, by state.

import { request } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { nameOf } from "../lib/names.js";
import { linkTo } from "../lib/router.js";
import { timeOf } from "../lib/time.js";

const STATES = ["running", "waiting", "completed", "failed", "cancelled", "interrupted"];

/**
 * The mark of a run's state.
 * @param {string} status
 * @returns {HTMLElement}
 */
export function runChip(status) {
  const kind = { running: "plain", waiting: "ask", completed: "ok", failed: "bad", cancelled: "plain", interrupted: "bad" }[status] ?? "plain";
  const words = { running: "Runs", waiting: "Waits", completed: "Completed", failed: "Failed", cancelled: "Cancelled", interrupted: "Interrupted" }[status] ?? status;
  return h("span", { class: `chip ${kind}` }, status === "running" ? h("span", { class: "pulse", "aria-hidden": "true" }) : null, words);
}

/** @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }} */
export function runsView() {
  const heading = h("h1", { tabindex: "-1" }, "Runs");
  const choice = h("select", { id: "run-state", on: { change: () => read() } }, h("option", { value: "" }, "All"), STATES.map((state) => h("option", { value: state }, state[0].toUpperCase() + state.slice(1))));
  const status = h("div", { role: "status" });
  const list = h("ul", { class: "run-list", "aria-label": "Runs" });
  const more = h("div", {});
  let asking = new AbortController();

  async function read(after) {
    asking.abort();
    asking = new AbortController();
    try {
      const page = await request("GET", "api/runs", { query: { status: choice.value, after }, signal: asking.signal });
      if (!after) replace(list);
      const rows = page.items.map(row);
      list.append(...rows);
      // The button has gone; the focus goes to the first run that it has brought.
      if (after) rows[0]?.querySelector("a").focus();
      replace(status, list.childElementCount === 0 ? h("p", { class: "empty" }, "There are no such runs.") : null);
      replace(more, page.next ? h("button", { type: "button", class: "small", on: { click: () => read(page.next) } }, "Show more") : null);
    } catch (error) {
      if (error.name !== "AbortError") replace(status, h("p", { class: "error" }, error.message));
    }
  }

  read();
  const element = h("div", { class: "view" }, heading,
    h("p", { class: "lead" }, "A run is one piece of an agent's work, from its start to its end, with all calls in the audit log."),
    h("div", { class: "filter" }, h("label", { for: "run-state" }, "State"), choice), status, list, more);
  return { element, heading, title: "Runs", close: () => asking.abort() };
}

function row({ id, agentId, status, startedAt, updatedAt }) {
  return h("li", {}, h("a", { class: "run-card", href: linkTo("runs", id) },
    h("span", { class: "run-agent", dir: "auto" }, nameOf(agentId)),
    runChip(status),
    h("span", { class: "run-times" }, timeOf(startedAt), updatedAt ? [" to ", timeOf(updatedAt)] : null),
    h("code", { class: "run-id" }, id)));
}
