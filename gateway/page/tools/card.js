// The card of a tool call: its name and state, the tool's component, and the answer's way to the gateway. A component that
// fails is replaced by the fallback, so that no input can hide a call.

import { at, request } from "../lib/api.js";
import { announce } from "../lib/announce.js";
import { h, replace } from "../lib/dom.js";
import { prettyJson } from "../lib/json.js";
import { linkTo } from "../lib/router.js";
import { textNodes } from "../lib/text.js";
import { longText } from "../lib/long_text.js";
import { fallback } from "./fallback.js";
import { componentOf } from "./registry.js";

const STATES = {
  streaming: ["Is being written", "plain"],
  running: ["Runs", "plain"],
  requires_action: ["Waits for an answer", "ask"],
  complete: ["Done", "ok"],
  error: ["Failed", "bad"],
};

/**
 * A tool message's call.
 * @param {any} message
 * @returns {import("./registry.js").ToolCall}
 */
export function callOfMessage({ tool, status }) {
  const isOpen = status === "streaming" && tool.output === null && tool.error === null;
  return { callId: tool.callId, runId: tool.runId, name: tool.name, input: tool.input, output: tool.output ?? null, error: tool.error ?? null, status: isOpen ? "running" : status };
}

/**
 * The call of the API's list of calls.
 * @param {any} call
 * @returns {import("./registry.js").ToolCall}
 */
export function callOfList({ callId, runId, toolName, args, status, result }) {
  const open = status === "waiting" || status === "pending";
  return { callId, runId, name: toolName, input: args, output: result ?? null, error: null, status: open ? "requires_action" : "complete" };
}

/**
 * Draws a call.
 * @param {import("./registry.js").ToolCall} call
 * @param {{ message?: any, heading?: string, onAnswered?: () => void }} [options] `heading`: the tag of the card's title
 * @returns {HTMLElement}
 */
export function toolCard(call, { message = null, heading = "h3", onAnswered } = {}) {
  const body = h("div", { class: "tool-body" });
  const problem = h("div", { class: "slot", role: "alert" });
  const state = h("span", {});
  const card = h("section", { class: "tool", role: "group", "aria-label": `Tool ${call.name}`, tabindex: "-1", "data-testid": "tool", "data-tool": call.name },
    h("header", { class: "tool-head" },
      h(heading, { class: "tool-name" }, call.name),
      state,
      h("a", { class: "tool-run", href: linkTo("runs", call.runId) }, "Run")),
    body, problem);
  let current = call;
  let sending = false;

  function draw() {
    const [words, kind] = STATES[current.status] ?? [String(current.status), "plain"];
    state.className = `chip ${kind}`;
    replace(state, words);
    card.classList.toggle("asks", current.status === "requires_action");
    replace(body, content(current, message, submit));
    if (current.error) body.append(h("div", { class: "failure" }, longText(typeof current.error === "string" ? current.error : prettyJson(current.error))));
  }

  async function submit(result) {
    if (sending) throw new Error("an answer is already being sent");
    sending = true;
    // `inert` would take the focus away, and the event of the answer may redraw the card before the response is here.
    card.setAttribute("aria-busy", "true");
    replace(problem);
    try {
      await request("POST", at`api/runs/${current.runId}/tool-results`, { body: { callId: current.callId, result } });
    } catch (error) {
      replace(problem, h("p", { class: "error" }, error.message));
      throw error;
    } finally {
      sending = false;
      card.removeAttribute("aria-busy");
    }
    const hadFocus = card.contains(document.activeElement);
    current = { ...current, output: result, status: "complete" };
    draw();
    // The buttons have gone, and the focus must not go with them.
    if (hadFocus) card.focus({ preventScroll: true });
    announce("Your answer was sent.");
    onAnswered?.();
  }

  draw();
  return card;
}

/** The component's element, or the fallback's with the reason. */
function content(call, message, submit) {
  const text = (value) => textNodes(typeof value === "string" ? value : prettyJson(value));
  const context = { document, message, call, submit, text };
  const component = componentOf(call.name);
  if (!component) return fallback(context);
  try {
    const element = component(context);
    if (!(element instanceof Element)) throw new TypeError("the component has not returned an element");
    return element;
  } catch (error) {
    return [h("p", { class: "note", "data-testid": "component-failed" }, `The component of this tool cannot show it: ${error?.message ?? error}.`), fallback(context)];
  }
}
