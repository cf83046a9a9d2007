// The live region: says what has happened to a person who does not see the page change.

import { h } from "./dom.js";
import { summary } from "./text.js";

/** The newest announcements that stay in the region. A screen reader says additions only. */
const KEPT = 20;

/**
 * Announces a text when the screen reader has time.
 * @param {string} text
 */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (!region) return;
  region.append(h("p", {}, summary(text, 240)));
  while (region.childElementCount > KEPT) region.firstElementChild.remove();
}
