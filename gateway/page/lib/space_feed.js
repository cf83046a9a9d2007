// Keeps the state of one space in step with the gateway: the stream, the lists behind it, and a reload after a gap.

import { at, listAll, PAGE, request } from "./api.js";
import { announce } from "./announce.js";
import { parseJson } from "./json.js";
import { learn } from "./names.js";
import { applyEvent, emptySpace, withMessages, withNewestPage } from "./space_state.js";
import { followEvents } from "./sse.js";
import { createStore } from "./store.js";
import { noteEvent } from "./waiting.js";

/** The least time between two repeated readings that gaps in a stream cause, in milliseconds. */
const LEAST_PAUSE = 2000;

/**
 * Opens a space.
 * @param {string} spaceId
 * @param {string | null} myId the person's own id, whose messages are not announced
 * @returns {{ store: import("./store.js").Store<any>, loadOlder(): Promise<void>, reload(): Promise<void>, add(message: any): void, retryNow(): void, close(): void }}
 */
export function openSpace(spaceId, myId) {
  const messagesPath = at`api/spaces/${spaceId}/messages`;
  const store = createStore({ ...emptySpace(), space: null, connection: { kind: "connecting" }, error: null });
  let closed = false;
  let reloading = null;
  let lastReload = 0;

  async function read(anew) {
    lastReload = Date.now();
    try {
      const [space, members, page, runs] = await Promise.all([
        request("GET", at`api/spaces/${spaceId}`),
        listAll(at`api/spaces/${spaceId}/members`),
        request("GET", messagesPath, { query: { limit: PAGE } }),
        // The agents at work are an addition: a caller who may not list runs sees them from the next event on.
        request("GET", "api/runs", { query: { status: "running", limit: 200 } }).catch(() => ({ items: [] })),
      ]);
      learn(members);
      const here = new Map(runs.items.filter((run) => run.spaceId === spaceId).map(({ id, agentId }) => [id, agentId]));
      store.update((state) => ({ ...withNewestPage(state, page, anew), space, members, runs: here, error: null }));
    } catch (error) {
      store.update((state) => ({ ...state, error }));
    }
  }

  // One reading after the other: a slow answer must not undo a newer one.
  function reload(anew = false) {
    reloading = (reloading ?? Promise.resolve()).then(() => (closed ? undefined : read(anew)));
    return reloading;
  }

  function onEvent({ type, data: source }) {
    if (type === "reset") {
      reload(true);
      return;
    }
    let data;
    try {
      data = parseJson(source);
    } catch {
      reload(true);
      return;
    }
    const before = store.get();
    if (data.message?.author) learn([data.message.author]);
    if (data.member) learn([data.member]);
    store.update((state) => applyEvent(state, { type, data }));
    noteEvent(type);
    announceMessage(before, type, data, myId);
    if (store.get().stale && Date.now() - lastReload > LEAST_PAUSE) reload();
  }

  const stream = followEvents(at`api/spaces/${spaceId}/events`, {
    onEvent,
    onState(connection) {
      const wasLost = store.get().connection.lost;
      store.update((state) => ({ ...state, connection: { ...connection, lost: connection.kind === "waiting" || (connection.kind === "connecting" && state.connection.lost) } }));
      // Without a stream the messages are shown all the same.
      if (connection.kind === "waiting" && !store.get().loaded) reload();
      if (connection.kind !== "open") return;
      if (wasLost) announce("The connection is back.");
      if (!connection.resumed || !store.get().loaded) reload();
    },
  });

  return {
    store,
    reload,
    retryNow: () => stream.retryNow(),
    add: (message) => store.update((state) => withMessages(state, [message])),
    async loadOlder() {
      const before = store.get().older;
      if (!before) return;
      const page = await request("GET", messagesPath, { query: { limit: PAGE, before } });
      store.update((state) => ({ ...withMessages(state, page.items), older: page.next }));
    },
    close() {
      closed = true;
      stream.close();
    },
  };
}

/** Announces a message once it is whole. */
function announceMessage(before, type, data, myId) {
  if (type !== "message.created" && type !== "message.updated") return;
  const { message } = data;
  const known = before.messages.find(({ id }) => id === message.id);
  if (message.author.id === myId || message.status === "streaming") return;
  if (known && known.status === message.status) return;
  if (message.kind === "text") announce(`${message.author.name}: ${message.text}`);
  else if (message.status === "complete") announce(`${message.tool.name} of ${message.author.name} is done.`);
  else if (message.status === "error") announce(`${message.tool.name} of ${message.author.name} has failed.`);
}
