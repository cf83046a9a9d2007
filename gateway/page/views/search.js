// The sheet that searches the messages of a space.

import { at, request } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { summary } from "../lib/text.js";
import { timeOf } from "../lib/time.js";
import { openPanel } from "./panel.js";

/** The pause after the last letter before the gateway is asked, in milliseconds. */
const PAUSE = 250;

/**
 * Opens the sheet.
 * @param {string} spaceId
 */
export function openSearch(spaceId) {
  const field = h("input", { id: "search", type: "text", inputmode: "search", autocomplete: "off", enterkeyhint: "search", dir: "auto", autofocus: true });
  const status = h("p", { class: "hint", role: "status" }, "Type a word.");
  const list = h("ol", { class: "found", "data-testid": "found" });
  const more = h("div", {});
  let asking = new AbortController();
  let timer;

  async function search(before) {
    asking.abort();
    asking = new AbortController();
    const text = field.value.trim();
    if (text === "") {
      replace(list);
      replace(more);
      replace(status, "Type a word.");
      return;
    }
    try {
      const page = await request("GET", at`api/spaces/${spaceId}/messages`, { query: { search: text, limit: 30, before }, signal: asking.signal });
      if (!before) replace(list);
      const items = page.items.map((message) => found(message, text));
      list.append(...items);
      // The button has gone; the focus goes to the first message that it has brought.
      if (before) items[0]?.focus();
      replace(status, list.childElementCount === 0 ? "Nothing was found." : list.childElementCount === 1 ? "1 message" : `${list.childElementCount}${page.next ? " or more" : ""} messages, the newest first`);
      replace(more, page.next ? h("button", { type: "button", class: "small", on: { click: () => search(page.next) } }, "Show more") : null);
    } catch (error) {
      if (error.name !== "AbortError") replace(status, h("span", { class: "error" }, error.message));
    }
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(), PAUSE);
  });
  const submit = (event) => {
    event.preventDefault();
    clearTimeout(timer);
    search();
  };
  const panel = openPanel("Search", h("form", { role: "search", on: { submit } }, h("label", { for: "search" }, "Find messages with"), field), status, list, more);
  panel.onClose(() => {
    clearTimeout(timer);
    asking.abort();
  });
}

/** A found message, with the place that was found. */
function found({ author, text, tool, createdAt }, wanted) {
  const source = tool ? `${tool.name} ${text}` : text;
  const at = source.toLowerCase().indexOf(wanted.toLowerCase());
  const start = Math.max(0, at - 60);
  const excerpt = (start > 0 ? "…" : "") + summary(source.slice(start), 220);
  const place = excerpt.toLowerCase().indexOf(wanted.toLowerCase());
  return h("li", { tabindex: "-1" },
    h("p", { class: "found-by" }, h("span", { dir: "auto" }, author.name), timeOf(createdAt)),
    h("p", { class: "found-text", dir: "auto" }, place < 0 ? excerpt : [excerpt.slice(0, place), h("mark", {}, excerpt.slice(place, place + wanted.length)), excerpt.slice(place + wanted.length)]));
}
