// The field to write a message. Its text stays until the gateway has taken it, even over a reload of the tab.

import { at, request } from "../lib/api.js";
import { announce } from "../lib/announce.js";
import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { draftOf, keepDraft } from "../lib/session.js";
import { summary } from "../lib/text.js";

/** The field grows with its text up to this height, in pixels. */
const HIGHEST = 240;

/**
 * Makes the field.
 * @param {string} spaceId
 * @param {any} feed the space, which gets the message that was sent
 * @returns {{ element: HTMLElement, replyTo(message: any): void }}
 */
export function composer(spaceId, feed) {
  const problem = h("div", { class: "slot", role: "alert" });
  const quoted = h("div", { class: "slot" });
  const field = h("textarea", { id: "composer", rows: "1", placeholder: "Write a message", "aria-describedby": "composer-hint", autocomplete: "off", dir: "auto", enterkeyhint: "send" });
  const button = h("button", { type: "submit", class: "send", "aria-label": "Send", title: "Send" }, icon("send"));
  let target = null;
  let sending = false;

  field.value = draftOf(spaceId);
  field.addEventListener("input", () => {
    keepDraft(spaceId, field.value);
    fit();
  });
  field.addEventListener("keydown", (event) => {
    // While an input method composes a character, Enter belongs to it.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) send(event);
    if (event.key === "Escape" && target) replyTo(null);
  });
  requestAnimationFrame(fit);

  function fit() {
    // A style sheet cannot know the height of the text; `field-sizing` is not in all browsers yet.
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, HIGHEST)}px`;
  }

  function replyTo(message) {
    target = message;
    replace(quoted, message ? h("div", { class: "reply-to" },
      h("span", { dir: "auto" }, `Reply to ${message.author.name}: ${summary(message.text, 80)}`),
      h("button", { type: "button", class: "icon-button", "aria-label": "Do not reply", on: { click: () => replyTo(null) } }, icon("close"))) : null);
    field.focus();
  }

  async function send(event) {
    event.preventDefault();
    const text = field.value;
    if (sending || text.trim() === "") return;
    sending = true;
    field.readOnly = true;
    button.setAttribute("aria-disabled", "true");
    replace(problem);
    try {
      feed.add(await request("POST", at`api/spaces/${spaceId}/messages`, { body: { text, ...(target ? { replyTo: target.id } : {}) } }));
      field.value = "";
      keepDraft(spaceId, "");
      target = null;
      replace(quoted);
      fit();
      announce("Your message was sent.");
    } catch (error) {
      replace(problem, h("p", { class: "error" }, `Not sent: ${error.message}`));
    } finally {
      sending = false;
      field.readOnly = false;
      button.removeAttribute("aria-disabled");
      field.focus();
    }
  }

  const element = h("form", { class: "composer", novalidate: true, on: { submit: send } },
    problem, quoted,
    h("div", { class: "composer-box" },
      h("label", { for: "composer", class: "unseen" }, "Message"), field, button),
    h("p", { class: "hint", id: "composer-hint" }, "Enter sends, Shift and Enter begin a new line."));
  return { element, replyTo };
}
