// The round mark of a person or an agent: its first letter, in a colour that its id decides.

import { h } from "../lib/dom.js";
import { summary } from "../lib/text.js";

const COLOURS = 6;

/**
 * Makes a mark. It has no words for screen readers, since the name stands beside it.
 * @param {{ id: string, name: string, kind: string }} entity
 * @returns {HTMLElement}
 */
export function avatar({ id, name, kind }) {
  let sum = 0;
  for (const character of String(id)) sum = (sum * 31 + character.codePointAt(0)) % 9973;
  const letter = /[\p{L}\p{N}]/u.exec(String(name))?.[0] ?? "?";
  return h("span", { class: `avatar ${kind === "agent" ? "agent" : "user"} hue-${sum % COLOURS}`, "aria-hidden": "true" }, summary(letter.toUpperCase(), 2));
}
