// The questions that wait for a person: approvals and pending calls, in all spaces. There is no stream of all spaces, so
// the lists are read again from time to time, and soon after an event of the open space that concerns them.

import { listAll } from "./api.js";
import { announce } from "./announce.js";
import { nameOf } from "./names.js";
import { createStore } from "./store.js";

/** The pause between two readings while the page is in view, in milliseconds. */
const PAUSE = 15_000;
/** Events that come together cause one reading. */
const GATHER = 200;

/** @type {import("./store.js").Store<{ approvals: any[], calls: any[], loaded: boolean, error: Error | null }>} */
export const waiting = createStore(nothing());

/** Ids that were announced, or were there when the page was opened. */
const told = new Set();
let timer;
let active = false;
let generation = 0;

function nothing() {
  return { approvals: [], calls: [], loaded: false, error: null };
}

/** Begins to follow the questions. */
export function startWaiting() {
  active = true;
  document.addEventListener("visibilitychange", refreshWhenSeen);
  refreshWaiting();
}

/** Stops, and forgets what is known. */
export function stopWaiting() {
  active = false;
  generation += 1;
  clearTimeout(timer);
  document.removeEventListener("visibilitychange", refreshWhenSeen);
  told.clear();
  waiting.update(nothing);
}

/** @param {string} type the type of an event; one that concerns questions causes a reading */
export function noteEvent(type) {
  if (active && /^(call|approval)\./.test(type)) schedule(GATHER);
}

/** Reads the questions now. */
export async function refreshWaiting() {
  clearTimeout(timer);
  generation += 1;
  const mine = generation;
  try {
    const [approvals, ...calls] = await Promise.all([
      listAll("api/approvals", { status: "waiting" }, 200),
      listAll("api/calls", { status: "waiting" }, 200),
      listAll("api/calls", { status: "pending" }, 200),
    ]);
    if (mine !== generation) return;
    const first = !waiting.get().loaded;
    const next = { approvals, calls: calls.flat(), loaded: true, error: null };
    tell(next, first);
    waiting.update(() => next);
  } catch (error) {
    if (mine !== generation) return;
    waiting.update((state) => ({ ...state, error }));
  }
  if (active) schedule(PAUSE);
}

/**
 * The number of questions that wait for this person.
 * @param {{ approvals: any[], calls: any[] }} state
 * @returns {number}
 */
export function waitingCount({ approvals, calls }) {
  return approvals.length + calls.filter(({ executionType }) => executionType !== "external").length;
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (document.visibilityState === "visible" || pause < PAUSE) refreshWaiting();
    else schedule(PAUSE);
  }, pause);
}

function refreshWhenSeen() {
  if (document.visibilityState === "visible") refreshWaiting();
}

function tell({ approvals, calls }, silently) {
  const questions = [
    ...approvals.map(({ id, agentId, toolName }) => [id, `${nameOf(agentId)} asks for approval of ${toolName}.`]),
    ...calls.map(({ callId, agentId, toolName }) => [callId, `${toolName} of ${nameOf(agentId)} waits for an answer.`]),
  ];
  for (const [id, text] of questions) {
    if (!told.has(id) && !silently) announce(text);
    told.add(id);
  }
}
