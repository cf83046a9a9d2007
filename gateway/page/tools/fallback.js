// The component of tools that have none of their own: input and output as JSON text, and an answer as JSON where the call
// waits for one.

import { freshId, h } from "../lib/dom.js";
import { parseJson, prettyJson } from "../lib/json.js";
import { longText } from "../lib/long_text.js";

/** @type {import("./registry.js").ToolComponent} */
export function fallback({ call, submit }) {
  return h("div", { class: "fallback" },
    part("Input", call.input),
    call.output === null || call.output === undefined ? null : part("Output", call.output),
    call.status === "requires_action" ? answer(submit) : null);
}

/** @param {string} title @param {unknown} value */
function part(title, value) {
  const isText = typeof value === "string";
  return h("div", { class: "part" }, h("p", { class: "part-title" }, title), longText(isText ? value : prettyJson(value), { code: true, exact: true, label: title }));
}

/** @param {(result: unknown) => Promise<void>} submit */
function answer(submit) {
  const id = freshId("answer");
  const problem = h("p", { class: "field-error", id: `${id}-problem` });
  const field = h("textarea", { id, rows: "3", spellcheck: "false", autocomplete: "off", class: "code-field", "aria-describedby": `${id}-hint ${id}-problem` });
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
    problem.replaceChildren();
    field.removeAttribute("aria-invalid");
    submit(result).catch(() => {});
  };
  return h("form", { class: "answer", novalidate: true, on: { submit: send } },
    h("label", { for: id }, "Answer as JSON"),
    h("p", { class: "hint", id: `${id}-hint` }, 'For example { "done": true }'),
    field, problem,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Send the answer")));
}
