// The state of one space, and how events and lists change it. Pure functions: nothing here draws or asks the gateway.

/**
 * @typedef {{ id: string, ordinal: number, spaceId: string, author: { id: string, kind: string, name: string }, kind: "text" | "tool", text: string,
 *   replyTo: string | null, status: "streaming" | "requires_action" | "complete" | "error", tool: any, createdAt: string, updatedAt: string }} Message
 * @typedef {{ messages: Message[], members: any[], older: string | null, loaded: boolean, stale: boolean,
 *   arriving: Map<string, { name: string, input: string }>, runs: Map<string, string> }} SpaceState
 */

/** @returns {SpaceState} a space of which nothing is known */
export function emptySpace() {
  return { messages: [], members: [], older: null, loaded: false, stale: false, arriving: new Map(), runs: new Map() };
}

/**
 * Applies one event of the space's stream.
 * @param {SpaceState} state
 * @param {{ type: string, data: any }} event
 * @returns {SpaceState} `stale` is true if an event has shown that earlier ones were missed
 */
export function applyEvent(state, { type, data }) {
  switch (type) {
    case "message.created":
    case "message.updated":
      return withoutArriving(withMessages(state, [data.message]), data.message.tool?.callId);
    case "message.streaming":
      return withStreamedText(state, data);
    case "tool.started":
      // A visible call has its message by now, and an invisible one is not shown.
      return withoutArriving(state, data.callId);
    case "tool.streaming":
      return withArriving(state, data.callId, data.name, data.partialInput);
    case "tool.done":
      return withoutArriving(withToolResult(state, data, { output: data.output, error: null }, "complete"), data.callId);
    case "tool.error":
      return withoutArriving(withToolResult(state, data, { error: data.error }, "error"), data.callId);
    case "member.joined":
      return { ...state, members: [...state.members.filter(({ id }) => id !== data.member.id), data.member] };
    case "member.left":
      return { ...state, members: state.members.filter(({ id }) => id !== data.id) };
    case "run.started":
      return { ...state, runs: new Map(state.runs).set(data.runId, data.agentId) };
    case "run.finished":
      return withoutRun(state, data.runId);
    default:
      return state;
  }
}

/**
 * Merges messages into the list by id; of two versions the newer one stays.
 * @param {SpaceState} state
 * @param {Message[]} messages
 * @returns {SpaceState}
 */
export function withMessages(state, messages) {
  const byId = new Map(state.messages.map((message) => [message.id, message]));
  for (const message of messages) byId.set(message.id, newer(byId.get(message.id), message));
  return { ...state, messages: [...byId.values()].sort((a, b) => a.ordinal - b.ordinal) };
}

/**
 * Takes the newest page of messages. Where it does not meet what is known, or after a reset, it replaces what is older.
 * @param {SpaceState} state
 * @param {{ items: Message[], next: string | null }} page
 * @param {boolean} anew whether what is known must not be kept
 * @returns {SpaceState}
 */
export function withNewestPage(state, page, anew) {
  const ids = new Set(page.items.map(({ id }) => id));
  const meets = !anew && state.loaded && state.messages.some(({ id }) => ids.has(id));
  const newest = Math.max(-1, ...page.items.map(({ ordinal }) => ordinal));
  const kept = meets ? state.messages : state.messages.filter(({ id, ordinal }) => ids.has(id) || ordinal > newest);
  const merged = withMessages({ ...state, messages: kept }, page.items);
  return { ...merged, older: meets ? state.older : page.next, loaded: true, stale: false };
}

/** @param {Message | undefined} known @param {Message} other @returns {Message} */
function newer(known, other) {
  if (!known || other.updatedAt > known.updatedAt) return other;
  if (other.updatedAt < known.updatedAt) return known;
  // The text of a stream is ahead of what the store has.
  const isAhead = known.status === "streaming" && other.status === "streaming" && known.text.length > other.text.length;
  return isAhead ? known : other;
}

/** `offset` counts UTF-16 units, as JavaScript does. */
function withStreamedText(state, { messageId, offset, text }) {
  const index = state.messages.findLastIndex(({ id }) => id === messageId);
  const known = state.messages[index];
  if (!known || known.text.length < offset) return { ...state, stale: true };
  if (known.status !== "streaming") return state;
  const messages = [...state.messages];
  messages[index] = { ...known, text: known.text.slice(0, offset) + text };
  return { ...state, messages };
}

function withToolResult(state, { messageId, callId }, result, status) {
  const index = state.messages.findLastIndex((message) => message.id === messageId || (message.tool && message.tool.callId === callId));
  const known = state.messages[index];
  if (!known?.tool) return state;
  const messages = [...state.messages];
  messages[index] = { ...known, status, tool: { ...known.tool, ...result } };
  return { ...state, messages };
}

/** A call whose input is being written has no message yet. */
function withArriving(state, callId, name, input) {
  if (state.messages.some((message) => message.tool?.callId === callId)) return state;
  const shown = typeof input === "string" ? input : JSON.stringify(input ?? "");
  return { ...state, arriving: new Map(state.arriving).set(callId, { name, input: shown }) };
}

function withoutArriving(state, callId) {
  if (!state.arriving.has(callId)) return state;
  const arriving = new Map(state.arriving);
  arriving.delete(callId);
  return { ...state, arriving };
}

function withoutRun(state, runId) {
  const runs = new Map(state.runs);
  runs.delete(runId);
  // A call that never got a message ends with its run.
  return { ...state, runs, arriving: runs.size === 0 ? new Map() : state.arriving };
}
