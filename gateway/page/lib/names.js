// Names of users and agents by id. Runs, calls and approvals carry ids only.

import { request } from "./api.js";

/** @type {Map<string, { name: string, kind?: string }>} */
const known = new Map();

/**
 * Keeps the names of entities.
 * @param {{ id: string, name: string, kind?: string }[]} entities members, authors, users or agents
 */
export function learn(entities) {
  for (const { id, name, kind } of entities) known.set(id, { name, kind: kind ?? known.get(id)?.kind });
}

/**
 * The name of a user or an agent; the id if the name is not known.
 * @param {string | null | undefined} id
 * @returns {string}
 */
export function nameOf(id) {
  return known.get(id)?.name ?? id ?? "";
}

/** Asks for the names of agents. A caller who may not list them sees the names that messages and members carry. */
export async function learnAgents() {
  try {
    learn((await request("GET", "api/agents", { query: { limit: 200 } })).items);
  } catch {
    // Names are an addition: without them the ids are shown.
  }
}
