// A space's messages. Only changed parts are redrawn, so that a half-filled form and the reader's position stay.

import { callOfMessage, toolCard } from "../tools/card.js";
import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { summary } from "../lib/text.js";
import { prettyJson } from "../lib/json.js";
import { dayOf } from "../lib/time.js";
import { messageRow } from "./message.js";

/** A reader who is nearer to the end than this, in pixels, follows new messages. */
const NEAR = 120;

/**
 * Makes the list.
 * @param {any} feed the space
 * @param {{ id: string | null }} me
 * @param {{ onReply: (message: any) => void, questions: { element: HTMLElement, count(): number } }} options `questions` stand
 *   after the last message
 * @returns {{ element: HTMLElement, draw(state: any): void, close(): void }}
 */
export function timeline(feed, me, { onReply, questions }) {
  const list = h("ol", { class: "messages", "aria-label": "Messages", "data-testid": "messages" });
  const arriving = h("div", { class: "arriving" });
  const head = h("div", { class: "timeline-head" });
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Messages of the space" }, h("div", { class: "column" }, head, list, arriving, questions.element));
  const jumpWords = h("span", {});
  const jump = h("button", { type: "button", class: "jump small", hidden: true, on: { click: toEnd } }, icon("down"), jumpWords);
  const element = h("div", { class: "timeline" }, scroller, jump);
  /** @type {Map<string, { key: string, row: any }>} */
  const rows = new Map();
  let follows = true;
  let newestId = null;
  let missed = false;

  scroller.addEventListener("scroll", () => {
    follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
    if (follows) missed = false;
    drawJump();
  }, { passive: true });
  // Charts and long texts change the height after they are drawn.
  const resized = new ResizeObserver(() => { if (follows) toEnd(); });
  resized.observe(list);
  resized.observe(questions.element);
  resized.observe(scroller);

  function toEnd() {
    scroller.scrollTop = scroller.scrollHeight;
  }

  /** The way to what has come below the reader's place. */
  function drawJump() {
    const count = questions.count();
    const words = count === 1 ? "1 question waits" : count > 1 ? `${count} questions wait` : "New messages";
    if (jumpWords.textContent !== words) replace(jumpWords, words);
    jump.hidden = follows || !(missed || count > 0);
  }

  function draw(state) {
    drawHead(state);
    const known = new Map(state.messages.map((message) => [message.id, message]));
    for (const [id, { row }] of rows) {
      if (known.has(id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    let before = null;
    let place = list.firstElementChild;
    for (const message of state.messages) {
      const old = rows.get(message.id)?.row.element;
      const element = rowOf(message, before, known).element;
      // A redrawn row is where the old one was.
      if (old && old === place) place = element;
      if (element === place) place = place.nextElementSibling;
      else list.insertBefore(element, place);
      before = message;
    }
    drawArriving(state);
    const newest = state.messages.at(-1);
    if (newest && newest.id !== newestId) {
      const isMine = newest.author.id === me.id;
      if (follows || isMine || newestId === null) requestAnimationFrame(toEnd);
      else missed = true;
      newestId = newest.id;
    } else if (follows) {
      toEnd();
    }
    drawJump();
  }

  /** The row of a message, made again if more than its text has changed. */
  function rowOf(message, before, known) {
    const day = dayOf(message.createdAt);
    const newDay = !before || dayOf(before.createdAt) !== day ? day : null;
    const follow = !newDay && before.author.id === message.author.id && before.kind === "text" && message.kind === "text" && !message.replyTo;
    const quoted = message.replyTo ? known.get(message.replyTo) ?? null : null;
    const key = [message.kind, message.status === "error", newDay, follow, quoted ? quoted.text : "", message.kind === "tool" ? toolKey(message) : ""].join("\u0000");
    const entry = rows.get(message.id);
    if (entry?.key === key) {
      entry.row.update(message);
      return entry.row;
    }
    const row = messageRow(message, { me, newDay, follow, quoted, onReply, body: message.kind === "tool" ? toolCard(callOfMessage(message), { message, heading: "h2" }) : null });
    if (entry) {
      const hadFocus = entry.row.element.contains(document.activeElement);
      entry.row.element.replaceWith(row.element);
      if (hadFocus) (row.element.querySelector(".tool") ?? row.element).focus({ preventScroll: true });
    }
    rows.set(message.id, { key, row });
    return row;
  }

  function drawHead({ older, loaded, messages }) {
    const kind = !loaded ? "loading" : older ? "older" : messages.length === 0 ? "empty" : "start";
    if (head.dataset.kind === kind) return;
    head.dataset.kind = kind;
    if (kind === "loading") replace(head, h("p", { class: "none", role: "status" }, "Reading the messages …"));
    else if (kind === "older") replace(head, h("button", { type: "button", class: "small", on: { click: loadOlder } }, "Show older messages"));
    else if (kind === "empty") replace(head, h("p", { class: "empty" }, "There are no messages yet. Write the first one."));
    else replace(head);
  }

  async function loadOlder(event) {
    const button = event.currentTarget;
    if (button.hasAttribute("aria-disabled")) return;
    // `disabled` would take the focus away.
    button.setAttribute("aria-disabled", "true");
    const fromEnd = scroller.scrollHeight - scroller.scrollTop;
    try {
      await feed.loadOlder();
      requestAnimationFrame(() => { scroller.scrollTop = scroller.scrollHeight - fromEnd; });
      if (!feed.store.get().older) scroller.focus({ preventScroll: true });
    } catch (error) {
      head.append(h("p", { class: "error", role: "alert" }, error.message));
    } finally {
      button.removeAttribute("aria-disabled");
    }
  }

  function drawArriving(state) {
    replace(arriving, [...state.arriving].map(([callId, { name, input }]) => h("div", { class: "arriving-call", "data-testid": "arriving", "data-call": callId },
      h("p", {}, h("span", { class: "pulse", "aria-hidden": "true" }), "Prepares ", h("code", {}, name)),
      input ? h("pre", { class: "code faint" }, summary(input.slice(-600), 600)) : null)));
  }

  return { element, draw, close: () => resized.disconnect() };
}

/** Changes when the card must be redrawn. */
function toolKey(message) {
  const { status, tool } = message;
  const known = toolKeys.get(message) ?? `${status} ${prettyJson([tool.input ?? null, tool.output ?? null, tool.error ?? null])}`;
  toolKeys.set(message, known);
  return known;
}

/** Messages are never changed in place, so a key is made once a message and not with each part of a stream. */
const toolKeys = new WeakMap();
