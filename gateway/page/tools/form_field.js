// One field of a form: the control for a property of a JSON Schema, and the reading of its value. A keyword that a field
// cannot honour is an error, so that a form never accepts less or more than its schema says.

import { h } from "../lib/dom.js";
import { prettyJson } from "../lib/json.js";

const COMMON = ["type", "title", "description", "default", "enum"];
const KEYWORDS = {
  string: [...COMMON, "minLength", "maxLength", "format"],
  number: [...COMMON, "minimum", "maximum"],
  integer: [...COMMON, "minimum", "maximum"],
  boolean: [...COMMON],
};
/** The formats of texts, with the kind of control. */
const FORMATS = { email: "email", uri: "url", date: "date", time: "time" };
/** A text that may be longer than this gets several lines. */
const ONE_LINE = 200;

/**
 * @typedef {{ key: string, title: string, type: string, schema: any, required: boolean, choices: unknown[] | null, control: any, problem: HTMLElement, element: HTMLElement }} Field
 */

/**
 * Makes a field.
 * @param {string} id
 * @param {string} key the property's name
 * @param {any} schema the property's schema
 * @param {boolean} required
 * @returns {Field}
 * @throws {TypeError} for a schema that the form cannot show
 */
export function fieldOf(id, key, schema, required) {
  const type = schema?.type ?? (Array.isArray(schema?.enum) ? "string" : undefined);
  const keywords = KEYWORDS[type];
  if (!Object.hasOwn(KEYWORDS, type ?? "")) throw new TypeError(`the property ${key} has a type that a form cannot show`);
  const unknown = Object.keys(schema).find((keyword) => !keywords.includes(keyword));
  if (unknown) throw new TypeError(`the property ${key} has the keyword ${unknown}, which a form does not know`);
  if (schema.format !== undefined && !Object.hasOwn(FORMATS, schema.format)) throw new TypeError(`the property ${key} has the format ${schema.format}, which a form does not know`);
  const choices = Array.isArray(schema.enum) ? schema.enum : null;
  const title = String(schema.title ?? key);
  const problem = h("p", { class: "field-error", id: `${id}-problem` });
  const hint = schema.description === undefined ? null : h("p", { class: "hint", id: `${id}-hint`, dir: "auto" }, String(schema.description));
  const described = { id, "aria-describedby": [hint ? `${id}-hint` : "", `${id}-problem`].join(" ").trim() };
  const control = controlOf(type, schema, choices, required, described);
  const label = h("label", { for: id }, title, required && type !== "boolean" ? h("span", { class: "required" }, " (required)") : null);
  const element = type === "boolean" && !choices
    ? h("div", { class: "field check" }, h("div", { class: "check-line" }, control, label), hint, problem)
    : h("div", { class: "field" }, label, hint, control, problem);
  return { key, title, type, schema, required, choices, control, problem, element };
}

function controlOf(type, schema, choices, required, described) {
  const mandatory = { "aria-required": required && type !== "boolean" ? "true" : undefined };
  if (choices) {
    const selected = choices.findIndex((choice) => choice === schema.default);
    return h("select", { ...described, ...mandatory },
      h("option", { value: "", selected: selected < 0 }, required ? "Choose …" : "None"),
      choices.map((choice, index) => h("option", { value: index, selected: index === selected }, typeof choice === "string" ? choice : prettyJson(choice))));
  }
  if (type === "boolean") return h("input", { ...described, type: "checkbox", checked: schema.default === true });
  const preset = schema.default === undefined ? "" : String(schema.default);
  if (type !== "string") {
    const control = h("input", { ...described, ...mandatory, type: "text", inputmode: type === "integer" ? "numeric" : "decimal", autocomplete: "off" });
    control.value = preset;
    return control;
  }
  const control = schema.format === undefined && schema.maxLength > ONE_LINE
    ? h("textarea", { ...described, ...mandatory, rows: "4" })
    : h("input", { ...described, ...mandatory, type: FORMATS[schema.format] ?? "text", autocomplete: "off" });
  control.value = preset;
  return control;
}

/**
 * Reads a field.
 * @param {Field} field
 * @returns {{ value?: unknown, error?: string }} neither for an optional field that is empty
 */
export function readField({ type, schema, required, choices, control }) {
  if (type === "boolean" && !choices) return { value: control.checked };
  const text = control.value;
  if (text === "" && control.validity?.badInput) return { error: "This value is not complete." };
  if (text === "") return required ? { error: choices ? "Choose one." : "A value is needed." } : {};
  if (choices) return { value: choices[Number(text)] };
  return type === "string" ? readText(text, schema, control) : readNumber(text.trim(), type, schema);
}

function readText(text, { minLength, maxLength }, control) {
  // JSON Schema counts code points.
  const length = [...text].length;
  if (length < minLength) return { error: `At least ${minLength} characters are needed.` };
  if (length > maxLength) return { error: `At most ${maxLength} characters are allowed; these are ${length}.` };
  if (control.validity?.typeMismatch) return { error: control.type === "email" ? "This is not an email address." : "This is not an address such as https://example.org." };
  return { value: text };
}

function readNumber(text, type, { minimum, maximum }) {
  const value = Number(text);
  if (!/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/.test(text) || !Number.isFinite(value)) return { error: "This is not a number, such as 12 or 2.5." };
  if (type === "integer" && !Number.isInteger(value)) return { error: "This is not a whole number." };
  if (type === "integer" && !Number.isSafeInteger(value)) return { error: "This number is too large." };
  if (value < minimum) return { error: `The least value is ${minimum}.` };
  if (value > maximum) return { error: `The greatest value is ${maximum}.` };
  return { value };
}
