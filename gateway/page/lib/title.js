// The title of the tab.

import { summary } from "./text.js";

/** @param {string} title of the view */
export function setTitle(title) {
  document.title = title ? `${summary(title, 60)} – Portcullis` : "Portcullis";
}
