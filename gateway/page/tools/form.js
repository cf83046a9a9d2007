// `form`: asks for values by a JSON Schema of flat properties. Input: `{ "title"?, "description"?, "schema": { "type": "object",
// "properties", "required"? } }`, or the schema itself; the result is the object.

import { freshId, h, replace } from "../lib/dom.js";
import { longText } from "../lib/long_text.js";
import { fieldOf, readField } from "./form_field.js";

/** More fields than this are not a form for a person. */
const MOST_FIELDS = 50;
/** The keywords of an object that a form keeps: it sends no other properties than those named. */
const KEYWORDS = ["$schema", "type", "title", "description", "properties", "required", "additionalProperties"];

/** @type {import("./registry.js").ToolComponent} */
export function form({ call, submit }) {
  const input = call.input ?? {};
  const schema = input.schema ?? input;
  const head = [
    input.title === undefined ? null : h("p", { class: "tool-title", dir: "auto" }, String(input.title)),
    input.description === undefined ? null : longText(String(input.description)),
  ];
  const fields = fieldsOf(schema);
  if (call.status !== "requires_action") return h("div", { class: "form" }, head, answers(fields, call.output));

  const problem = h("div", { class: "slot", role: "alert" });
  const send = (event) => {
    event.preventDefault();
    const values = {};
    const wrong = [];
    for (const field of fields) {
      const { value, error } = readField(field);
      replace(field.problem, error ?? "");
      if (error) field.control.setAttribute("aria-invalid", "true");
      else field.control.removeAttribute("aria-invalid");
      if (error) wrong.push(field);
      // `__proto__` as a name must become a member like any other.
      else if (value !== undefined) Object.defineProperty(values, field.key, { value, enumerable: true });
    }
    if (wrong.length > 0) {
      replace(problem, h("p", { class: "error" }, wrong.length === 1 ? "One field needs another value." : `${wrong.length} fields need other values.`));
      wrong[0].control.focus();
      return;
    }
    replace(problem);
    submit(values).catch(() => {});
  };
  return h("form", { class: "form", novalidate: true, on: { submit: send } }, head, fields.map(({ element }) => element), problem,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Send")));
}

/** @param {any} schema */
function fieldsOf(schema) {
  if (schema === null || typeof schema !== "object" || typeof schema.properties !== "object" || schema.properties === null) {
    throw new TypeError("the input has no schema with properties");
  }
  const unknown = Object.keys(schema).find((keyword) => !KEYWORDS.includes(keyword));
  if (unknown) throw new TypeError(`the schema has the keyword ${unknown}, which a form does not know`);
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const entries = Object.entries(schema.properties);
  if (entries.length === 0) throw new TypeError("the schema has no properties");
  if (entries.length > MOST_FIELDS) throw new TypeError(`the schema has more than ${MOST_FIELDS} properties`);
  return entries.map(([key, property]) => fieldOf(freshId("field"), key, property, required.has(key)));
}

/** @param {ReturnType<typeof fieldsOf>} fields @param {any} output */
function answers(fields, output) {
  if (output === null || typeof output !== "object") return null;
  return h("dl", { class: "answers" }, fields.filter(({ key }) => Object.hasOwn(output, key)).map(({ key, title }) =>
    h("div", {}, h("dt", {}, title), h("dd", { dir: "auto" }, output[key] === true ? "Yes" : output[key] === false ? "No" : String(output[key])))));
}
