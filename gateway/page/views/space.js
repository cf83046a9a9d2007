// The view of one space: its messages as they come, its questions, and the field to write.

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { nameOf } from "../lib/names.js";
import { linkTo } from "../lib/router.js";
import { openSpace } from "../lib/space_feed.js";
import { setTitle } from "../lib/title.js";
import { avatar } from "./avatar.js";
import { composer } from "./composer.js";
import { connectionLine } from "./connection.js";
import { openMembers } from "./members.js";
import { openSearch } from "./search.js";
import { spaceQuestions } from "./space_questions.js";
import { timeline } from "./timeline.js";

/** The most faces in the head of a space. */
const FACES = 4;

/**
 * Makes the view.
 * @param {string} spaceId
 * @param {{ id: string | null, subject: string }} me
 * @returns {{ element: HTMLElement, heading: HTMLElement, title: string, close(): void }}
 */
export function spaceView(spaceId, me) {
  const feed = openSpace(spaceId, me.id);
  const heading = h("h1", { tabindex: "-1", dir: "auto" }, "Space");
  const faces = h("span", { class: "faces", "aria-hidden": "true" });
  const count = h("span", {});
  const working = h("p", { class: "working", role: "status", "data-testid": "working" });
  const problem = h("div", { class: "slot", role: "alert" });
  const write = composer(spaceId, feed);
  const line = connectionLine(() => feed.retryNow());
  const questions = spaceQuestions(spaceId, feed, heading);
  const messages = timeline(feed, me, { onReply: (message) => write.replyTo(message), questions });
  const element = h("div", { class: "space" },
    h("header", { class: "space-head" },
      h("a", { class: "icon-button back", href: linkTo("spaces"), "aria-label": "All spaces" }, icon("back")),
      heading,
      h("button", { type: "button", class: "faces-button", on: { click: () => openMembers(spaceId, feed, me) } }, faces, count),
      h("button", { type: "button", class: "icon-button", "aria-label": "Search the messages", title: "Search the messages", on: { click: () => openSearch(spaceId) } }, icon("search"))),
    line.element, problem, messages.element,
    h("div", { class: "space-foot" }, working, write.element));
  let title = "";

  function draw(state) {
    if (state.space && state.space.name !== title) {
      title = state.space.name;
      replace(heading, title);
      setTitle(title);
    }
    replace(faces, state.members.slice(0, FACES).map(avatar));
    replace(count, state.members.length === 1 ? "1 member" : `${state.members.length} members`);
    const problemText = state.error?.message ?? (state.connection.kind === "refused" ? state.connection.error.message : "");
    if (problem.textContent !== problemText) replace(problem, problemText ? h("p", { class: "error" }, problemText) : null);
    drawWorking(working, state);
    line.draw(state.connection);
    questions.draw();
    messages.draw(state);
  }

  draw(feed.store.get());
  const stop = feed.store.subscribe(draw);
  return {
    element, heading, title: "Space",
    close() {
      stop();
      questions.close();
      line.close();
      messages.close();
      feed.close();
    },
  };
}

/** Says which agents work, and where to look at them. */
function drawWorking(element, { runs }) {
  const key = [...runs.keys()].join(" ");
  if (element.dataset.runs === key) return;
  element.dataset.runs = key;
  replace(element, [...runs].slice(0, 3).map(([runId, agentId]) => h("a", { href: linkTo("runs", runId) }, h("span", { class: "pulse", "aria-hidden": "true" }), `${nameOf(agentId)} works`)));
}
