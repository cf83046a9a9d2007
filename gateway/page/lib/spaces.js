// The spaces that the person sees, shared by the frame and the list of spaces.

import { listAll, request } from "./api.js";
import { createStore } from "./store.js";

/** @type {import("./store.js").Store<{ items: any[], loaded: boolean, error: Error | null }>} */
export const spaces = createStore({ items: [], loaded: false, error: null });

/** Reads the spaces. */
export async function refreshSpaces() {
  try {
    const items = await listAll("api/spaces");
    spaces.update(() => ({ items, loaded: true, error: null }));
  } catch (error) {
    spaces.update((state) => ({ ...state, error }));
  }
}

/**
 * Makes a space.
 * @param {string} name
 * @returns {Promise<{ id: string, name: string }>}
 */
export async function makeSpace(name) {
  const space = await request("POST", "api/spaces", { body: { name } });
  spaces.update((state) => ({ ...state, items: [...state.items.filter(({ id }) => id !== space.id), space] }));
  return space;
}

/** Forgets the spaces of a person who has signed out. */
export function forgetSpaces() {
  spaces.update(() => ({ items: [], loaded: false, error: null }));
}
