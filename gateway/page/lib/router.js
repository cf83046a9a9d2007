// Addresses of views: the part behind `#` names the view, so that the gateway serves one page for all of them.

/**
 * @typedef {{ name: "spaces" } | { name: "space", id: string } | { name: "waiting" } | { name: "runs" } | { name: "run", id: string } | { name: "unknown" }} Route
 */

/**
 * The address of a view.
 * @param {string} name
 * @param {string} [id]
 * @returns {string}
 */
export function linkTo(name, id) {
  return id === undefined ? `#/${name}` : `#/${name}/${encodeURIComponent(id)}`;
}

/**
 * Reads an address.
 * @param {string} hash
 * @returns {Route}
 */
export function routeOf(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  if (parts.length === 0) return { name: "spaces" };
  if (parts.length > 2) return { name: "unknown" };
  try {
    const id = parts.length === 2 ? decodeURIComponent(parts[1]) : null;
    if (parts[0] === "spaces") return id === null ? { name: "spaces" } : { name: "space", id };
    if (parts[0] === "runs") return id === null ? { name: "runs" } : { name: "run", id };
    if (parts[0] === "waiting" && id === null) return { name: "waiting" };
  } catch {
    // Not valid percent-encoding: no view has this address.
  }
  return { name: "unknown" };
}

/**
 * Tells of the present view and of each later one.
 * @param {(route: Route) => void} onRoute
 * @returns {() => void} stops
 */
export function followRoute(onRoute) {
  const tell = () => onRoute(routeOf(location.hash));
  addEventListener("hashchange", tell);
  tell();
  return () => removeEventListener("hashchange", tell);
}
