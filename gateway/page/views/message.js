// One message: its author, its time, and its text or its tool.

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { longText } from "../lib/long_text.js";
import { summary, textNodes } from "../lib/text.js";
import { timeOf } from "../lib/time.js";
import { avatar } from "./avatar.js";

/**
 * Makes the row of a message.
 * @param {any} message
 * @param {{ me: { id: string | null }, newDay?: string | null, follow?: boolean, quoted?: any, onReply?: (message: any) => void, body?: HTMLElement | null }} options
 *   `newDay`: the name of the day that begins with the message; `follow`: the author is the one of the message before
 * @returns {{ element: HTMLElement, update(message: any): void }} `update` draws a changed text
 */
export function messageRow(message, { me, newDay, follow, quoted, onReply, body = null }) {
  const { author } = message;
  const isMine = author.id === me.id;
  const text = h("div", { class: "message-text" });
  let current = message;
  let shown = null;

  const by = h("div", { class: follow ? "unseen" : "message-by" },
    h("span", { class: "message-author", dir: "auto" }, author.name),
    isMine ? h("span", { class: "mark" }, "You") : author.kind === "agent" ? h("span", { class: "mark" }, "Agent") : null,
    timeOf(message.createdAt, { clockOnly: true }));
  const reply = message.kind === "text" && onReply
    ? h("button", { type: "button", class: "icon-button reply", "aria-label": `Reply to ${author.name}`, title: "Reply", on: { click: () => onReply(current) } }, icon("reply")) : null;
  const article = h("article", { class: `message${body ? " with-tool" : ""}${follow ? " follow" : ""}${isMine ? " mine" : ""}`, "data-testid": "message", "data-message": message.id },
    h("span", { class: "message-face" }, follow ? null : avatar(author)),
    h("div", { class: "message-main" },
      by,
      message.replyTo ? h("p", { class: "quote", dir: "auto" }, quoted ? `${quoted.author.name}: ${summary(quoted.text, 120)}` : "Reply to an older message") : null,
      body ?? text),
    reply);
  const element = h("li", {}, newDay ? h("p", { class: "day" }, h("span", {}, newDay)) : null, article);

  function update(next) {
    current = next;
    article.dataset.status = next.status;
    if (body || (shown && shown.text === next.text && shown.status === next.status)) return;
    const isStreaming = next.status === "streaming";
    // A growing text is one block without a button; the finished one may be cut.
    if (isStreaming) replace(text, h("div", { class: "prose", dir: "auto" }, tail(next.text)), h("span", { class: "caret", "aria-hidden": "true" }), h("span", { class: "unseen" }, "is being written"));
    else replace(text, longText(next.text), next.status === "error" ? h("p", { class: "failure" }, "This message was not finished.") : null);
    shown = { text: next.text, status: next.status };
  }

  update(message);
  return { element, update };
}

/** The most characters of a growing text that are drawn with each part. */
const TAIL = 20_000;

function tail(text) {
  return text.length <= TAIL ? textNodes(text) : textNodes(`… ${text.slice(-TAIL)}`);
}
