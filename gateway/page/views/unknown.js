// The view of an address that names none.

import { h } from "../lib/dom.js";
import { linkTo } from "../lib/router.js";

/** @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }} */
export function unknownView() {
  const heading = h("h1", { tabindex: "-1" }, "There is no such page");
  const element = h("div", { class: "view" }, heading, h("p", { class: "lead" }, "The address may be old, or was cut off."), h("p", {}, h("a", { href: linkTo("spaces") }, "Go to your spaces")));
  return { element, heading, title: "Not found", close() {} };
}
