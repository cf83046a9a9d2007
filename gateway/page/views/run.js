// The view of one run: its state, what it has read (labels), its steps, and its rows of the audit log.

import { ApiError, at, request } from "../lib/api.js";
import { announce } from "../lib/announce.js";
import { h, replace } from "../lib/dom.js";
import { nameOf } from "../lib/names.js";
import { linkTo } from "../lib/router.js";
import { followEvents } from "../lib/sse.js";
import { spaces } from "../lib/spaces.js";
import { timeOf } from "../lib/time.js";
import { auditRows } from "./rows.js";
import { runChip } from "./runs.js";

/** Events that come together cause one reading, in milliseconds. */
const GATHER = 300;

/**
 * Makes the view.
 * @param {string} runId
 * @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }}
 */
export function runView(runId) {
  const heading = h("h1", { tabindex: "-1" }, "Run");
  const problem = h("div", { class: "slot", role: "alert" });
  const facts = h("div", {});
  const steps = h("div", {});
  const rows = auditRows(runId);
  const element = h("div", { class: "view wide" },
    h("p", { class: "crumb" }, h("a", { href: linkTo("runs") }, "Runs")),
    heading, h("p", { class: "run-full-id" }, h("code", {}, runId)), problem, facts, steps, rows.element);
  const stop = new AbortController();
  let status = null;
  let timer;

  async function read() {
    try {
      const run = await request("GET", at`api/runs/${runId}`, { signal: stop.signal });
      replace(problem);
      replace(heading, "Run of ", nameOf(run.agentId));
      if (status && status !== run.status) announce(`The run is ${run.status}.`);
      status = run.status;
      drawFacts(run);
      drawSteps(steps, run.steps ?? []);
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
      return;
    }
    rows.read();
  }

  function fail(error) {
    replace(problem, h("p", { class: "error" }, error.message));
  }

  function drawFacts(run) {
    const isOpen = run.status === "running" || run.status === "waiting";
    const hadFocus = facts.contains(document.activeElement);
    const space = spaces.get().items.find(({ id }) => id === run.spaceId);
    replace(facts,
      h("dl", { class: "facts" },
        fact("State", runChip(run.status)),
        fact("Started", timeOf(run.startedAt, { seconds: true })),
        fact(isOpen ? "Last change" : "Ended", timeOf(run.updatedAt, { seconds: true })),
        run.spaceId ? fact("Space", h("a", { href: linkTo("spaces", run.spaceId), dir: "auto" }, space?.name ?? run.spaceId)) : null,
        fact("Has read", labels(run.labels ?? []))),
      isOpen ? h("div", { class: "actions" }, h("button", { type: "button", class: "danger", on: { click: cancel } }, "Cancel the run")) : null);
    if (hadFocus) (facts.querySelector("button") ?? heading).focus();
  }

  async function cancel(event) {
    const button = event.currentTarget;
    if (button.hasAttribute("aria-disabled")) return;
    // `disabled` would take the focus away.
    button.setAttribute("aria-disabled", "true");
    try {
      await request("POST", at`api/runs/${runId}/cancel`);
      announce("The run is being cancelled.");
      await read();
    } catch (error) {
      button.removeAttribute("aria-disabled");
      fail(error);
    }
  }

  read();
  const stream = followEvents(at`api/runs/${runId}/events`, {
    onEvent() {
      clearTimeout(timer);
      timer = setTimeout(read, GATHER);
    },
    onState({ kind, resumed, error }) {
      if (kind === "open" && !resumed && status) read();
      if (kind === "refused" && error instanceof ApiError && error.status !== 404) fail(error);
    },
  });
  return {
    element, heading, title: "Run",
    close() {
      clearTimeout(timer);
      stop.abort();
      stream.close();
    },
  };
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

/** The flow labels of a run: what it had read decides what it may still do. */
function labels(names) {
  if (names.length === 0) return h("span", { class: "none" }, "Nothing that the policy marks");
  return h("ul", { class: "labels", "data-testid": "labels" }, names.map((name) => h("li", { class: "chip plain" }, name)));
}

function drawSteps(place, items) {
  replace(place, h("h2", {}, "Steps"), items.length === 0 ? h("p", { class: "none" }, "There are no steps yet.")
    : h("ol", { class: "steps", "data-testid": "steps" }, items.map(({ kind, summary, startedAt, finishedAt }) => h("li", { class: finishedAt ? "" : "open" },
      h("span", { class: "step-kind" }, kind), h("span", { class: "step-text", dir: "auto" }, summary ?? ""), h("span", { class: "step-time" }, timeOf(startedAt, { seconds: true }), finishedAt ? null : ", runs")))));
}
