// `confirmAction`: a question with two answers. Input: `{ "title"?: text, "message"?: text }`; the result is
// `{ "confirmed": true | false }`. The words on the buttons are the page's own, so that an agent cannot swap them.

import { h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { longText } from "../lib/long_text.js";

/** @type {import("./registry.js").ToolComponent} */
export function confirmAction({ call, submit }) {
  const { title, message } = call.input ?? {};
  if (title === undefined && message === undefined) throw new TypeError("the input has neither a title nor a message");
  // The card shows why an answer was refused.
  const answer = (confirmed) => () => submit({ confirmed }).catch(() => {});
  return h("div", { class: "confirm" },
    title === undefined ? null : h("p", { class: "tool-title", dir: "auto" }, String(title)),
    message === undefined ? null : longText(String(message)),
    call.status === "requires_action"
      ? h("div", { class: "actions" },
        h("button", { type: "button", class: "primary", on: { click: answer(true) } }, "Confirm"),
        h("button", { type: "button", on: { click: answer(false) } }, "Reject"))
      : outcome(call.output));
}

/** @param {any} output */
function outcome(output) {
  if (output?.confirmed === true) return h("p", { class: "outcome ok" }, icon("check"), "Confirmed");
  if (output?.confirmed === false) return h("p", { class: "outcome bad" }, icon("close"), "Rejected");
  return null;
}
