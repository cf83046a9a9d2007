// A sheet over the view, for members and search. The browser keeps the focus in it, closes it with Escape, and gives the
// focus back.

import { freshId, h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";

/**
 * Opens a sheet.
 * @param {string} title
 * @param {...unknown} content
 * @returns {{ element: HTMLElement, onClose(listener: () => void): void }}
 */
export function openPanel(title, ...content) {
  const id = freshId("panel");
  const close = () => element.close();
  const element = h("dialog", { class: "panel", "aria-labelledby": id },
    h("header", { class: "panel-head" },
      h("h2", { id }, title),
      h("button", { type: "button", class: "icon-button", "aria-label": "Close", on: { click: close } }, icon("close"))),
    h("div", { class: "panel-body" }, content));
  // A press beside the sheet lands on the dialog itself.
  element.addEventListener("click", (event) => { if (event.target === element) close(); });
  element.addEventListener("close", () => {
    removeEventListener("hashchange", close);
    element.remove();
  });
  addEventListener("hashchange", close);
  document.body.append(element);
  element.showModal();
  return { element, onClose: (listener) => element.addEventListener("close", listener) };
}
