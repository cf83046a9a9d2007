// A store of state: one value, and listeners that are told of changes once a frame.

/**
 * @template S
 * @typedef {{ get(): S, update(change: (state: S) => S): void, subscribe(listener: (state: S) => void): () => void }} Store
 */

/**
 * Makes a store. Changes of one frame reach the listeners together, so that a fast stream draws at the screen's rate.
 * @template S
 * @param {S} initial
 * @returns {Store<S>}
 */
export function createStore(initial) {
  let state = initial;
  let scheduled = false;
  const listeners = new Set();
  const tell = () => {
    if (!scheduled) return;
    scheduled = false;
    for (const listener of [...listeners]) listener(state);
  };
  return {
    get: () => state,
    update(change) {
      const next = change(state);
      if (next === state) return;
      state = next;
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(tell);
      // A page in the background gets no frames; its announcements must not wait for one.
      setTimeout(tell, 250);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
