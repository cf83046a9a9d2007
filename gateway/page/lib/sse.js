// Server-sent events by `fetch`, since EventSource cannot send the token in a header. Reconnects with the last id.

import { address, authorization, refusal } from "./api.js";
import { token } from "./session.js";

/** The stream sends a comment every 15 s. A connection that is silent for longer is dead. */
const SILENCE = 40_000;
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;
/** The most characters of one event that are kept while it is incomplete. */
const LONGEST_EVENT = 16 * 1024 * 1024;

/** Cuts a stream of text into events, as the HTML standard says. */
export class EventParser {
  /** @param {(event: { id: string, type: string, data: string }) => void} onEvent @param {(ms: number) => void} onRetry */
  constructor(onEvent, onRetry) {
    this.onEvent = onEvent;
    this.onRetry = onRetry;
    this.lastId = "";
    this.rest = "";
    this.type = "";
    this.data = [];
  }

  /** @param {string} chunk the next part of the stream, cut anywhere */
  push(chunk) {
    let text = this.rest + chunk;
    // A carriage return at the end may be the first half of a line's end.
    const held = text.endsWith("\r") ? "\r" : "";
    if (held) text = text.slice(0, -1);
    const lines = text.split(/\r\n|\r|\n/);
    this.rest = lines.pop() + held;
    if (this.rest.length > LONGEST_EVENT) throw new Error("an event is longer than this page reads");
    for (const line of lines) this.line(line);
  }

  /** @param {string} line */
  line(line) {
    if (line === "") {
      if (this.data.length > 0) this.onEvent({ id: this.lastId, type: this.type || "message", data: this.data.join("\n") });
      this.type = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.type = value;
    if (name === "data") this.data.push(value);
    if (name === "id" && !value.includes("\0")) this.lastId = value;
    if (name === "retry" && /^[0-9]+$/.test(value)) this.onRetry(Number(value));
  }
}

/**
 * Follows a stream until it is closed.
 * @param {string} path
 * @param {{
 *   onEvent: (event: { id: string, type: string, data: string }) => void,
 *   onState: (state: { kind: "connecting" | "open" | "waiting" | "refused", resumed?: boolean, until?: number, error?: Error }) => void,
 * }} listeners `open` with `resumed` false: events may have been missed, and the state must be read again
 * @returns {{ close(): void, retryNow(): void }}
 */
export function followEvents(path, { onEvent, onState }) {
  let closed = false;
  let lastId = "";
  let firstWait = FIRST_WAIT;
  let failures = 0;
  /** @type {AbortController | null} */
  let connection = null;
  /** @type {(() => void) | null} */
  let wake = null;

  async function connect() {
    connection = new AbortController();
    let watchdog;
    const heard = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => connection.abort(), SILENCE);
    };
    try {
      onState({ kind: "connecting" });
      heard();
      const used = token();
      const headers = { ...authorization(), Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) };
      const response = await fetch(address(path), { headers, signal: connection.signal, cache: "no-store", credentials: "omit" });
      if (!response.ok) throw refusal(response.status, await response.text(), used);
      failures = 0;
      onState({ kind: "open", resumed: lastId !== "" });
      const parser = new EventParser((event) => {
        // The id is kept first: an event whose handling fails must not be sent again and again.
        if (event.id) lastId = event.id;
        onEvent(event);
      }, (ms) => { firstWait = Math.min(Math.max(ms, 100), LONGEST_WAIT); });
      parser.lastId = lastId;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return null;
        heard();
        parser.push(value);
      }
    } catch (error) {
      return error;
    } finally {
      clearTimeout(watchdog);
      connection.abort();
    }
  }

  function rest(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => { clearTimeout(timer); resolve(); };
    });
  }

  async function run() {
    while (!closed) {
      const error = await connect();
      if (closed) return;
      // Other refusals pass: too many requests, a gateway that restarts, a proxy without its server.
      if ([400, 401, 403, 404, 405, 410].includes(error?.status)) {
        onState({ kind: "refused", error });
        return;
      }
      const wait = Math.min(firstWait * 2 ** failures, LONGEST_WAIT) * (0.75 + Math.random() / 2);
      failures += 1;
      onState({ kind: "waiting", until: Date.now() + wait, error: error ?? undefined });
      await rest(wait);
    }
  }

  const retryNow = () => wake?.();
  const seen = () => { if (document.visibilityState === "visible") retryNow(); };
  addEventListener("online", retryNow);
  document.addEventListener("visibilitychange", seen);
  run();
  return {
    retryNow,
    close() {
      closed = true;
      connection?.abort();
      retryNow();
      removeEventListener("online", retryNow);
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
