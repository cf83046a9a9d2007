// The questions of a space's agents that are in no message: approvals, and pending calls that are not visible.

import { callOfList, toolCard } from "../tools/card.js";
import { h, replace } from "../lib/dom.js";
import { refreshWaiting, waiting } from "../lib/waiting.js";
import { approvalCard } from "./approval_card.js";

/**
 * Makes the place for the questions; it is empty while none waits.
 * @param {string} spaceId
 * @param {any} feed the space
 * @param {HTMLElement} heading gets the focus of the last question that goes
 * @returns {{ element: HTMLElement, draw(): void, count(): number, close(): void }} `count`: how many wait, in messages too
 */
export function spaceQuestions(spaceId, feed, heading) {
  const list = h("div", { class: "question-list" });
  const title = h("h2", { class: "question-title", tabindex: "-1" });
  const element = h("section", { class: "questions", "aria-label": "Questions that wait", "data-testid": "questions" }, title, list);
  /** @type {Map<string, HTMLElement>} */
  const cards = new Map();

  function draw() {
    const { messages, members } = feed.store.get();
    const { approvals, calls } = waiting.get();
    const present = new Set(members.map(({ id }) => id));
    const inMessages = new Set(messages.map(({ tool }) => tool?.callId));
    const isHere = (question) => (question.spaceId ? question.spaceId === spaceId : present.has(question.agentId));
    const wanted = [
      ...approvals.filter(isHere).map((approval) => [approval.id, () => approvalCard(approval, { heading: "h3", onDecided: refreshWaiting })]),
      ...calls.filter((call) => isHere(call) && !inMessages.has(call.callId) && call.executionType !== "external")
        .map((call) => [call.callId, () => toolCard(callOfList(call), { onAnswered: refreshWaiting })]),
    ];
    syncCards(list, cards, wanted, wanted.length > 0 ? title : heading);
    const words = wanted.length === 1 ? "1 question waits for you" : `${wanted.length} questions wait for you`;
    if (title.textContent !== words) replace(title, words);
    element.hidden = wanted.length === 0;
  }

  draw();
  const stop = waiting.subscribe(draw);
  const count = () => cards.size + feed.store.get().messages.filter(({ status }) => status === "requires_action").length;
  return { element, draw, count, close: stop };
}

/**
 * Makes a list of cards hold the wanted ones in order. A card that stays is not touched, since a person may be writing in it.
 * @param {HTMLElement} list
 * @param {Map<string, HTMLElement>} cards the cards of the list by id
 * @param {[string, () => HTMLElement][]} wanted
 * @param {HTMLElement} fallbackFocus gets the focus of a card that goes
 */
export function syncCards(list, cards, wanted, fallbackFocus) {
  const ids = new Set(wanted.map(([id]) => id));
  for (const [id, card] of cards) {
    if (ids.has(id)) continue;
    const hadFocus = card.contains(document.activeElement);
    card.remove();
    cards.delete(id);
    if (hadFocus) fallbackFocus.focus();
  }
  let place = list.firstElementChild;
  for (const [id, make] of wanted) {
    if (!cards.has(id)) cards.set(id, make());
    const card = cards.get(id);
    if (card === place) place = place.nextElementSibling;
    else list.insertBefore(card, place);
  }
}
