// The page's icons: strokes on a grid of 20, hidden from screen readers, since the control that holds one has a name.

import { svg } from "./dom.js";

const PATHS = {
  gate: "M4 17V9a6 6 0 0 1 12 0v8M8 4v12M12 4v12M4 9.5h12M4 13.5h12",
  spaces: "M4 4h12a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-6l-4 3v-3H4a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1Z",
  waiting: "M5 3h10M5 17h10M6 3c0 5 8 5 8 14M14 3c0 5-8 5-8 14",
  runs: "M3 5h2M8 5h9M3 10h2M8 10h9M3 15h2M8 15h9",
  search: "M9 3a6 6 0 1 1 0 12A6 6 0 0 1 9 3ZM13.5 13.5 17 17",
  members: "M7.5 4a3 3 0 1 1 0 6 3 3 0 0 1 0-6ZM2 17c0-3 2.5-5 5.5-5s5.5 2 5.5 5M13 4.5a3 3 0 0 1 0 5.5M15 12.5c2 .7 3 2.3 3 4.5",
  send: "M10 16V4M4.5 9.5 10 4l5.5 5.5",
  back: "M12 4l-6 6 6 6",
  close: "M5 5l10 10M15 5 5 15",
  reply: "M8 5 3 10l5 5M3.5 10H12c3 0 5 2 5 5",
  down: "M10 4v12M4.5 10.5 10 16l5.5-5.5",
  leave: "M8 4H4v12h4M12 6l4 4-4 4M16 10H8",
  check: "M4 10.5 8 14.5 16 5.5",
  plus: "M10 4v12M4 10h12",
};

/**
 * An icon of the page.
 * @param {keyof typeof PATHS} name
 * @returns {SVGElement}
 */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" }, svg("path", { d: PATHS[name] }));
}
