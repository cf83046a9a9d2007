// The frame around all views: brand, navigation, the spaces, the questions that wait, and the person.

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { linkTo } from "../lib/router.js";
import { waiting, waitingCount } from "../lib/waiting.js";
import { spaces } from "../lib/spaces.js";

const ITEMS = [
  ["spaces", "Spaces", "spaces"],
  ["waiting", "Waiting", "waiting"],
  ["runs", "Runs", "runs"],
];

/**
 * Makes the frame.
 * @param {{ subject: string, name: string }} me
 * @param {{ onSignOut: () => void }} actions
 * @returns {{ element: HTMLElement, show(view: { element: HTMLElement }, route: import("../lib/router.js").Route): void, close(): void }}
 */
export function shell(me, { onSignOut }) {
  const badge = h("span", { class: "badge", "data-testid": "waiting-count" });
  const links = new Map(ITEMS.map(([name, words, picture]) => [name, h("a", { class: "nav-link", href: linkTo(name) }, icon(picture), h("span", {}, words), name === "waiting" ? badge : null)]));
  const list = h("ul", { class: "side-spaces" });
  const main = h("main", { id: "main", tabindex: "-1" });
  const element = h("div", { class: "shell" },
    h("header", { class: "side" },
      h("a", { class: "brand", href: linkTo("spaces") }, h("span", { class: "brand-mark", "aria-hidden": "true" }, icon("gate")), "Portcullis"),
      h("nav", { class: "nav", "aria-label": "Main" }, h("ul", {}, [...links.values()].map((link) => h("li", {}, link)))),
      h("nav", { class: "side-list", "aria-label": "Spaces" }, h("p", { class: "side-title", "aria-hidden": "true" }, "Spaces"), list),
      h("div", { class: "person" },
        h("div", { class: "person-name" }, h("span", { dir: "auto" }, me.name || "Operator"), h("small", {}, me.subject === "admin" ? "Operator" : "Signed in")),
        h("button", { type: "button", class: "icon-button", "aria-label": "Sign out", title: "Sign out", on: { click: onSignOut } }, icon("leave")))),
    main);
  let route = null;

  function drawSpaces({ items }) {
    replace(list, items.map(({ id, name }) => h("li", {}, h("a", { href: linkTo("spaces", id), dir: "auto", "aria-current": route?.name === "space" && route.id === id ? "page" : undefined }, name))));
  }

  function drawBadge(state) {
    const count = waitingCount(state);
    replace(badge, count === 0 ? null : [h("span", { "aria-hidden": "true" }, count > 99 ? "99+" : String(count)), h("span", { class: "unseen" }, count === 1 ? ", 1 question waits" : `, ${count} questions wait`)]);
    badge.hidden = count === 0;
  }

  drawSpaces(spaces.get());
  drawBadge(waiting.get());
  const stops = [spaces.subscribe(drawSpaces), waiting.subscribe(drawBadge)];
  return {
    element,
    show(view, next) {
      route = next;
      element.dataset.view = next.name;
      const section = { space: "spaces", run: "runs" }[next.name] ?? next.name;
      for (const [name, link] of links) {
        if (name === section) link.setAttribute("aria-current", name === next.name ? "page" : "true");
        else link.removeAttribute("aria-current");
      }
      drawSpaces(spaces.get());
      replace(main, view.element);
      main.scrollTop = 0;
    },
    close() {
      for (const stop of stops) stop();
    },
  };
}
