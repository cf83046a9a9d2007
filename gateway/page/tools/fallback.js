// The component of tools that have none of their own: input and output as JSON text, and an answer as JSON where the call
// waits for one.

import { freshId, h } from "../lib/dom.js";
import { parseJson, prettyJson } from "../lib/json.js";
import { longText } from "../lib/long_text.js";
import { summary } from "../lib/text.js";

/** @type {import("./registry.js").ToolComponent} */
export function fallback({ call, submit }) {
  return h("div", { class: "fallback" },
    part("Input", call.input, call.status === "requires_action"),
    call.output === null || call.output === undefined ? null : part("Output", call.output, false),
    call.status === "requires_action" ? answer(submit) : null);
}

/** A part that opens; who must answer sees the input immediately. */
function part(title, value, open) {
  const source = typeof value === "string" ? value : prettyJson(value);
  return h("details", { class: "part", open },
    h("summary", {}, h("span", { class: "part-title" }, title), " ", h("code", { class: "preview" }, summary(source, 90))),
    longText(source, { code: true, exact: true, label: title }));
}

/** @param {(result: unknown) => Promise<void>} submit */
function answer(submit) {
  const id = freshId("answer");
  const problem = h("p", { class: "field-error", id: `${id}-problem` });
  const field = h("textarea", { id, rows: "3", spellcheck: "false", autocomplete: "off", class: "code-field", "aria-describedby": `${id}-hint ${id}-problem` });
  field.addEventListener("input", () => {
    problem.replaceChildren();
    field.removeAttribute("aria-invalid");
  });
  const send = (event) => {
    event.preventDefault();
    let result;
    try {
      result = parseJson(field.value);
    } catch (error) {
      problem.replaceChildren(`This is not JSON: ${error.message}. A text needs quotation marks.`);
      field.setAttribute("aria-invalid", "true");
      field.focus();
      return;
    }
    submit(result).catch(() => {});
  };
  return h("form", { class: "answer", novalidate: true, on: { submit: send } },
    h("label", { for: id }, "Answer as JSON"),
    h("p", { class: "hint", id: `${id}-hint` }, 'For example { "done": true }'),
    field, problem,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Send the answer")));
}
