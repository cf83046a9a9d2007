// The sheet of a space's members, with adding and removing.

import { at, listAll, request } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { timeOf } from "../lib/time.js";
import { avatar } from "./avatar.js";
import { openPanel } from "./panel.js";

/**
 * Opens the sheet.
 * @param {string} spaceId
 * @param {any} feed the space
 * @param {{ id: string | null, subject: string }} me
 */
export function openMembers(spaceId, feed, me) {
  const list = h("ul", { class: "member-list", "aria-label": "Members", tabindex: "-1" });
  const problem = h("div", { class: "slot", role: "alert" });
  const adding = h("div", {});
  const panel = openPanel("Members", list, problem, adding);
  let everyone = [];

  async function change(method, id) {
    replace(problem);
    try {
      await request(method, at`api/spaces/${spaceId}/members/${id}`);
      await feed.reload();
    } catch (error) {
      replace(problem, h("p", { class: "error" }, error.message));
    }
  }

  function row(member) {
    return h("li", {}, avatar(member),
      h("div", { class: "member-text" },
        h("span", { dir: "auto" }, member.name),
        h("small", {}, member.kind === "agent" ? "Agent" : member.id === me.id ? "You" : "Person", ", since ", timeOf(member.joinedAt))),
      h("button", { type: "button", class: "icon-button", "aria-label": `Remove ${member.name}`, title: "Remove", on: { click: () => change("DELETE", member.id) } }, icon("close")));
  }

  function draw({ members }) {
    // The control that was pressed may go.
    const hadFocus = list.contains(document.activeElement) || adding.contains(document.activeElement);
    replace(list, members.map(row));
    const present = new Set(members.map(({ id }) => id));
    const others = everyone.filter(({ id }) => !present.has(id));
    replace(adding, others.length === 0 ? null : form(others));
    if (hadFocus) list.focus({ preventScroll: true });
  }

  function form(others) {
    const choice = h("select", { id: "new-member" }, others.map(({ id, name, kind }) => h("option", { value: id }, `${name} (${kind === "agent" ? "agent" : "person"})`)));
    const send = (event) => {
      event.preventDefault();
      change("PUT", choice.value);
    };
    return h("form", { class: "add-member", on: { submit: send } }, h("label", { for: "new-member" }, "Add someone"), h("div", { class: "row" }, choice, h("button", { type: "submit" }, "Add")));
  }

  draw(feed.store.get());
  panel.onClose(feed.store.subscribe(draw));
  // Only an operator lists the users. A caller who may not list agents either sees the members without a choice of others.
  Promise.allSettled([me.subject === "admin" ? listAll("api/users") : [], listAll("api/agents")]).then((lists) => {
    everyone = lists.flatMap(({ value }) => value ?? []);
    draw(feed.store.get());
  });
}
