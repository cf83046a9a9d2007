// The view of all questions that wait for the person: approvals and pending calls of every space.

import { callOfList, toolCard } from "../tools/card.js";
import { h, replace } from "../lib/dom.js";
import { nameOf } from "../lib/names.js";
import { linkTo } from "../lib/router.js";
import { spaces } from "../lib/spaces.js";
import { timeOf } from "../lib/time.js";
import { refreshWaiting, waiting } from "../lib/waiting.js";
import { approvalCard } from "./approval_card.js";
import { syncCards } from "./space_questions.js";

/** @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }} */
export function waitingView() {
  const heading = h("h1", { tabindex: "-1" }, "Waiting for you");
  const status = h("div", { role: "status" });
  const list = h("div", { class: "question-list", "data-testid": "questions" });
  const element = h("div", { class: "view" }, heading, h("p", { class: "lead" }, "Decisions and answers that your agents ask for."), status, list);
  /** @type {Map<string, HTMLElement>} */
  const cards = new Map();

  function draw({ approvals, calls, loaded, error }) {
    const wanted = [
      ...approvals.map((approval) => [approval.id, () => approvalCard(approval, { heading: "h2", onDecided: refreshWaiting })]),
      ...calls.map((call) => [call.callId, () => h("div", { class: "question" }, origin(call), toolCard(callOfList(call), { heading: "h2", onAnswered: refreshWaiting }))]),
    ];
    syncCards(list, cards, wanted, heading);
    const words = error ? error.message : !loaded ? "Reading the questions …" : wanted.length === 0 ? "Nothing waits. Agents go on without you." : "";
    if (status.textContent !== words) replace(status, words ? h("p", { class: error ? "error" : "empty" }, words) : null);
  }

  draw(waiting.get());
  const stop = waiting.subscribe(draw);
  refreshWaiting();
  return { element, heading, title: "Waiting", close: stop };
}

/** Says from whom and where a call comes. */
function origin({ agentId, spaceId, createdAt, expiresAt, executionType }) {
  const space = spaces.get().items.find(({ id }) => id === spaceId);
  return h("p", { class: "asked-by" }, h("strong", { dir: "auto" }, nameOf(agentId)),
    spaceId ? [" in ", h("a", { href: linkTo("spaces", spaceId), dir: "auto" }, space?.name ?? spaceId)] : null,
    ", ", timeOf(createdAt), expiresAt ? [", until ", timeOf(expiresAt)] : null,
    executionType === "external" ? ". A program answers this call." : null);
}
