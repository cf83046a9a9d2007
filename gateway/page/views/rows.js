// The audit rows of a run, in the log's own words: one line a row, and the whole row on request.

import { at, request } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { prettyJson } from "../lib/json.js";
import { longText } from "../lib/long_text.js";
import { durationOf, timeOf } from "../lib/time.js";

const COLUMNS = ["Time", "Event", "Tool", "Decision", "Outcome", "Took", "Row"];

/**
 * Makes the table.
 * @param {string} runId
 * @returns {{ element: HTMLElement, read(): Promise<void> }} `read` reads the rows that are new
 */
export function auditRows(runId) {
  const body = h("tbody", { role: "rowgroup" });
  const status = h("div", { role: "status" });
  // A phone shows each row as a block, and tables that are not tables in CSS keep their meaning only by roles.
  const table = h("table", { class: "rows", role: "table" }, h("caption", { class: "unseen" }, "Audit rows of the run"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))), body);
  const element = h("section", { "aria-labelledby": "audit-rows", "data-testid": "rows" }, h("h2", { id: "audit-rows" }, "Audit rows"), status, h("div", { class: "scroll-x", tabindex: "0", role: "group", "aria-label": "Table of the audit rows" }, table));
  const known = new Set();
  let reading = false;
  let again = false;

  async function read() {
    // Events come faster than answers: one reading at a time, and one more for those that came meanwhile.
    again = reading;
    if (reading) return;
    reading = true;
    try {
      let after;
      do {
        const page = await request("GET", at`api/runs/${runId}/rows`, { query: { limit: 200, after } });
        for (const row of page.items) {
          const key = row.hash ?? row.seq ?? prettyJson(row);
          if (known.has(key)) continue;
          known.add(key);
          body.append(lineOf(row));
        }
        after = page.next;
      } while (after);
      replace(status, known.size === 0 ? h("p", { class: "none" }, "There are no rows yet.") : null);
    } catch (error) {
      replace(status, h("p", { class: "error" }, error.message));
    }
    reading = false;
    if (again) await read();
  }

  return { element, read };
}

function lineOf(row) {
  const denied = row.decision === "deny";
  const decision = row.decision ? [h("span", { class: `chip ${denied ? "bad" : "ok"}` }, row.decision), row.code && denied ? h("small", {}, row.code) : null, row.rule ? h("small", {}, row.rule) : null] : "–";
  const outcome = row.outcome ? h("span", { class: `chip ${row.outcome === "ok" ? "ok" : row.outcome === "pending" ? "ask" : "bad"}` }, row.outcome) : "–";
  const button = h("button", { type: "button", class: "quiet small open-row", "aria-expanded": "false", "aria-label": `Whole row ${row.seq ?? ""}`.trim() }, row.seq === undefined ? "Show" : `#${row.seq}`);
  let whole = null;
  // A long table stays quick: a row is written out when it is opened.
  button.addEventListener("click", () => {
    if (whole) whole.remove();
    whole = whole ? null : h("tr", { role: "row", class: "whole" }, h("td", { role: "cell", colspan: COLUMNS.length }, longText(prettyJson(row), { code: true, exact: true, label: `Row ${row.seq ?? ""}` })));
    if (whole) line.after(whole);
    line.classList.toggle("opened", whole !== null);
    button.setAttribute("aria-expanded", String(whole !== null));
  });
  const cells = [timeOf(row.time, { seconds: true }), row.event ?? "–", row.tool ? h("code", {}, row.tool) : "–", decision, outcome, typeof row.duration_us === "number" ? durationOf(row.duration_us) : "–", button];
  const line = h("tr", { role: "row" }, cells.map((cell, index) => h("td", { role: "cell", "data-label": COLUMNS[index] }, cell)));
  return line;
}
