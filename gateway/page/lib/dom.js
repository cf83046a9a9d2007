// Builds elements. Every string becomes a text node or an attribute value with deceptive characters escaped; there is no
// way to pass markup.

import { shownText, textNodes } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

/** Attributes that hold addresses or identifiers of this page; they are set as they are. */
const RAW = new Set(["id", "for", "href", "class", "type", "name", "role", "value"]);

/**
 * Makes an HTML element.
 * @param {string} tag
 * @param {Record<string, unknown>} [properties] `on` holds listeners by event name; `true` sets an empty attribute; `false`,
 *   `null` and `undefined` set none
 * @param {...unknown} children nodes, strings, lists of these; `null`, `undefined` and `false` add nothing
 * @returns {HTMLElement}
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * Makes an SVG element.
 * @param {string} tag
 * @param {Record<string, unknown>} [properties] as in {@link h}
 * @param {...unknown} children
 * @returns {SVGElement}
 */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...unknown} children as in {@link h}
 */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

let lastId = 0;

/**
 * A fresh id for an element that another one refers to.
 * @param {string} prefix
 * @returns {string}
 */
export function freshId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** @template {Element} E @param {E} element @param {Record<string, unknown>} properties @param {unknown[]} children @returns {E} */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : RAW.has(name) ? String(value) : shownText(value));
    }
  }
  append(element, children);
  return element;
}

/** @param {Element} element @param {unknown[]} children */
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : textNodes(child));
  }
}
