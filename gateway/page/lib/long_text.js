// Shows a text of any length: its beginning first, the rest on request.

import { h, replace } from "./dom.js";
import { beginning, textNodes } from "./text.js";

const FIRST_CHARACTERS = 4000;
const FIRST_LINES = 40;
/** One press of the button shows at most so many characters more, so that the page stays quick. */
const STEP = 200_000;

/**
 * An element with a text.
 * @param {string} text
 * @param {{ code?: boolean, exact?: boolean, label?: string, onWhole?: () => void }} [options] `code`: a block of fixed
 *   width; `exact`: all blanks are shown as what they are; `onWhole` is called once all of the text is shown
 * @returns {HTMLElement}
 */
export function longText(text, { code = false, exact = false, label, onWhole } = {}) {
  const body = h(code ? "pre" : "div", { class: code ? "code" : "prose", dir: code ? "ltr" : "auto", ...(code && label ? { tabindex: "0", role: "group", "aria-label": label } : {}) });
  const box = h("div", { class: "long" }, body);
  let shown = firstPart(text);

  function draw() {
    replace(body, textNodes(text.slice(0, shown), { exact }));
    box.querySelector(":scope > button")?.remove();
    if (shown >= text.length) {
      onWhole?.();
      return;
    }
    body.append(document.createTextNode(" …"));
    const left = text.length - shown;
    const words = left > STEP ? `Show more (${left.toLocaleString()} characters are left)` : `Show all (${text.length.toLocaleString()} characters)`;
    box.append(h("button", { type: "button", class: "quiet small", "data-testid": "show-all", on: { click: more } }, words));
  }

  function more() {
    shown = beginning(text, shown + STEP).length;
    draw();
    // The button has gone; the focus stays where the new text is.
    const next = box.querySelector(":scope > button") ?? body;
    if (next === body && !body.hasAttribute("tabindex")) body.setAttribute("tabindex", "-1");
    next.focus({ preventScroll: true });
  }

  draw();
  return box;
}

/** @param {string} text @returns {number} how much of a text is shown at first */
function firstPart(text) {
  let end = -1;
  for (let line = 0; line < FIRST_LINES; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const byLines = end < 0 ? text.length : end;
  return beginning(text, Math.min(byLines, FIRST_CHARACTERS)).length;
}
