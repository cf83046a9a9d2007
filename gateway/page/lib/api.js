// The client of the gateway's HTTP API: one function a request, and one kind of error.

import { parseJson } from "./json.js";
import { token } from "./session.js";

/** A request without an answer is given up after this time, in milliseconds. */
const TIMEOUT = 30_000;

/** The most items that one request asks for. */
export const PAGE = 50;

/** A refusal of the gateway, or the reason why there was no answer. */
export class ApiError extends Error {
  /**
   * @param {number} status the HTTP status; 0 if there was no answer
   * @param {string} code the gateway's code, such as `not_found`; `unreachable` if there was no answer
   * @param {string} message the gateway's message
   * @param {string} [field] the field of the request that was wrong
   */
  constructor(status, code, message, field) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** @type {() => void} */
let whenUnauthorized = () => {};

/** @param {() => void} listener called when the gateway no longer accepts the token */
export function onUnauthorized(listener) {
  whenUnauthorized = listener;
}

/**
 * The address of a path of the gateway, even where the gateway is served below a folder.
 * @param {string} path without a leading slash
 * @param {Record<string, unknown>} [query] `null`, `undefined` and `""` are left out
 * @returns {URL}
 */
export function address(path, query = {}) {
  const url = new URL(path, document.baseURI);
  url.hash = "";
  url.search = "";
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/** @returns {Record<string, string>} the header that says who calls */
export function authorization() {
  const value = token();
  return value ? { Authorization: `Bearer ${value}` } : {};
}

/**
 * Sends one request and reads its JSON answer.
 * @param {string} method
 * @param {string} path such as `api/spaces`; ids in it are encoded by {@link at}
 * @param {{ query?: Record<string, unknown>, body?: unknown, signal?: AbortSignal }} [options]
 * @returns {Promise<any>} the answer; `null` if it is empty
 * @throws {ApiError}
 */
export async function request(method, path, { query, body, signal } = {}) {
  const used = token();
  const headers = { ...authorization(), Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const signals = [AbortSignal.timeout(TIMEOUT), ...(signal ? [signal] : [])];
  let response;
  let source;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals),
      cache: "no-store",
      credentials: "omit",
    });
    source = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    const reason = error.name === "TimeoutError" ? "did not answer in time" : "cannot be reached";
    throw new ApiError(0, "unreachable", `The gateway ${reason}.`);
  }
  if (!response.ok) throw refusal(response.status, source, used);
  if (source === "") return null;
  try {
    return parseJson(source);
  } catch {
    throw new ApiError(response.status, "unreadable", "The gateway's answer is not JSON.");
  }
}

/**
 * The error of a refused request; signs out if the token is no longer accepted.
 * @param {number} status
 * @param {string} source the body of the answer
 * @param {string | null} used the token of the request: a late answer says nothing about the token of a later sign-in
 * @returns {ApiError}
 */
export function refusal(status, source, used) {
  if (status === 401 && used === token()) whenUnauthorized();
  try {
    const { error } = JSON.parse(source);
    if (typeof error.message === "string") return new ApiError(status, String(error.code), error.message, error.field);
  } catch {
    // A proxy answered, or the answer was cut off: the status is all that is known.
  }
  return new ApiError(status, "unknown", `The gateway answered with status ${status}.`);
}

/**
 * Puts ids into a path.
 * @param {TemplateStringsArray} strings
 * @param {...string} ids
 * @returns {string}
 */
export function at(strings, ...ids) {
  return String.raw({ raw: strings }, ...ids.map((id) => encodeURIComponent(id)));
}

/**
 * Every item of a list, page after page.
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @param {number} [most] reading stops here, so that a long list does not hold up the page
 * @returns {Promise<any[]>}
 */
export async function listAll(path, query = {}, most = 1000) {
  const items = [];
  let after;
  do {
    const page = await request("GET", path, { query: { limit: 200, ...query, after } });
    items.push(...page.items);
    after = page.next;
  } while (after && items.length < most);
  return items;
}
