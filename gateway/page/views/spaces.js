// The view of all spaces that the person sees, and the making of a new one.

import { makeSpace, refreshSpaces, spaces } from "../lib/spaces.js";
import { h, replace } from "../lib/dom.js";
import { linkTo } from "../lib/router.js";
import { summary } from "../lib/text.js";
import { timeOf } from "../lib/time.js";

/** @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }} */
export function spacesView() {
  const heading = h("h1", { tabindex: "-1" }, "Spaces");
  const body = h("div", {});
  const element = h("div", { class: "view" },
    heading,
    h("p", { class: "lead" }, "A space is a conversation of people and agents. Agents show their tools there and ask their questions."),
    body, newSpace());

  function draw({ items, loaded, error }) {
    if (error) {
      replace(body, h("div", { class: "error", role: "alert" }, h("p", {}, error.message), h("button", { type: "button", class: "small", on: { click: refreshSpaces } }, "Try again")));
    } else if (!loaded) {
      replace(body, h("p", { class: "none", role: "status" }, "Reading the spaces …"));
    } else if (items.length === 0) {
      replace(body, h("p", { class: "empty" }, "You are in no space yet. Make one below, or ask the operator to add you."));
    } else {
      replace(body, h("ul", { class: "cards" }, items.map(card)));
    }
  }

  draw(spaces.get());
  const stop = spaces.subscribe(draw);
  refreshSpaces();
  return { element, heading, title: "Spaces", close: stop };
}

function card({ id, name, memberCount, createdAt }) {
  return h("li", {}, h("a", { class: "space-card", href: linkTo("spaces", id) },
    h("span", { class: "space-mark", "aria-hidden": "true" }, summary([...String(name)][0] ?? "?", 2).toUpperCase()),
    h("span", { class: "space-text" },
      h("span", { class: "space-name", dir: "auto" }, name),
      h("span", { class: "space-facts" }, memberCount === undefined ? "" : memberCount === 1 ? "1 member, " : `${memberCount} members, `, "since ", timeOf(createdAt)))));
}

function newSpace() {
  const field = h("input", { id: "space-name", type: "text", autocomplete: "off", maxlength: "200" });
  const problem = h("div", { class: "slot", role: "alert" });
  const button = h("button", { type: "submit" }, "Make the space");
  const send = async (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (name === "") {
      replace(problem, h("p", { class: "error" }, "A space needs a name."));
      field.focus();
      return;
    }
    button.disabled = true;
    try {
      const space = await makeSpace(name);
      location.hash = linkTo("spaces", space.id);
    } catch (error) {
      replace(problem, h("p", { class: "error" }, error.message));
      field.focus();
    } finally {
      button.disabled = false;
    }
  };
  return h("form", { class: "new-space", novalidate: true, on: { submit: send } },
    h("label", { for: "space-name" }, "Name of a new space"),
    h("div", { class: "row" }, field, button), problem);
}
