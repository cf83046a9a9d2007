// The card of an approval: the question, the tool, all arguments, and the two answers. A call can be approved only once all of
// its text is on the page.

import { at, request } from "../lib/api.js";
import { announce } from "../lib/announce.js";
import { freshId, h, replace } from "../lib/dom.js";
import { prettyJson } from "../lib/json.js";
import { longText } from "../lib/long_text.js";
import { nameOf } from "../lib/names.js";
import { linkTo } from "../lib/router.js";
import { timeOf } from "../lib/time.js";

/**
 * Makes the card.
 * @param {any} approval
 * @param {{ heading?: string, onDecided?: () => void }} [options] `heading`: the tag of the card's title
 * @returns {HTMLElement}
 */
export function approvalCard(approval, { heading = "h3", onDecided } = {}) {
  const id = freshId("approval");
  const problem = h("div", { class: "slot", role: "alert" });
  const actions = h("div", { class: "slot" });
  const hidden = new Set(["question", "args"]);
  const seen = (part) => () => {
    hidden.delete(part);
    drawActions();
  };
  let denies = false;
  let sending = false;
  let reason = "";

  const question = longText(String(approval.question ?? ""), { code: true, label: "Question", onWhole: seen("question") });
  // The question of the gateway has the arguments in it.
  const args = approval.args === undefined ? null
    : longText(prettyJson(approval.args), { code: true, exact: true, label: "Arguments", onWhole: seen("args") });
  const card = h("section", { class: "tool asks approval", role: "group", "aria-labelledby": id, tabindex: "-1", "data-testid": "approval", "data-approval": approval.id },
    h("header", { class: "tool-head" },
      h(heading, { class: "tool-name", id }, `Approve ${approval.toolName}?`),
      h("span", { class: "chip ask" }, "Waits for a decision"),
      h("a", { class: "tool-run", href: linkTo("runs", approval.runId) }, "Run")),
    h("div", { class: "tool-body" },
      h("p", { class: "asked-by" }, h("strong", { dir: "auto" }, nameOf(approval.agentId)), " asks to run ", h("code", {}, approval.toolName), approval.expiresAt ? [", until ", timeOf(approval.expiresAt)] : null),
      approval.question ? h("div", { class: "part" }, h("p", { class: "part-title" }, "Question"), question) : null,
      args ? h("div", { class: "part" }, h("p", { class: "part-title" }, "Arguments"), args) : null,
      actions, problem));
  if (!approval.question) hidden.delete("question");
  if (!args) hidden.delete("args");

  function drawActions() {
    const isWhole = hidden.size === 0;
    if (denies) {
      const field = h("input", { id: `${id}-reason`, type: "text", autocomplete: "off", maxlength: "1000", dir: "auto" });
      field.value = reason;
      field.addEventListener("input", () => { reason = field.value; });
      replace(actions, h("form", { class: "deny", novalidate: true, on: { submit: (event) => { event.preventDefault(); decide("deny"); } } },
        h("label", { for: `${id}-reason` }, "Reason, for the agent (optional)"), field,
        h("div", { class: "actions" },
          h("button", { type: "submit", class: "danger" }, "Deny"),
          h("button", { type: "button", class: "quiet", on: { click: () => show(false) } }, "Back"))));
      return;
    }
    replace(actions,
      isWhole ? null : h("p", { class: "note", id: `${id}-hint` }, "Show the whole text before you approve."),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "primary", "aria-disabled": isWhole ? undefined : "true", "aria-describedby": isWhole ? undefined : `${id}-hint`, on: { click: () => { if (hidden.size === 0) decide("approve"); } } }, "Approve"),
        h("button", { type: "button", on: { click: () => show(true) } }, "Deny …")));
  }

  function show(next) {
    denies = next;
    drawActions();
    actions.querySelector(next ? "input" : "button:last-of-type")?.focus();
  }

  async function decide(decision) {
    if (sending) return;
    sending = true;
    replace(problem);
    card.setAttribute("aria-busy", "true");
    try {
      await request("POST", at`api/approvals/${approval.id}`, { body: { decision, hash: approval.hash, ...(decision === "deny" && reason.trim() ? { reason: reason.trim() } : {}) } });
    } catch (error) {
      sending = false;
      replace(problem, h("p", { class: "error" }, error.message));
      return;
    } finally {
      card.removeAttribute("aria-busy");
    }
    const words = decision === "approve" ? "Approved" : "Denied";
    replace(actions, h("p", { class: `outcome ${decision === "approve" ? "ok" : "bad"}` }, words));
    card.classList.remove("asks");
    card.focus({ preventScroll: true });
    announce(`${words}: ${approval.toolName}.`);
    onDecided?.();
  }

  drawActions();
  return card;
}
