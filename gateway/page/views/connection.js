// The line that says that the connection is lost, and when the next try comes.

import { h, replace } from "../lib/dom.js";

/**
 * Makes the line; it is empty while the connection stands.
 * @param {() => void} retryNow
 * @returns {{ element: HTMLElement, draw(connection: any): void, close(): void }}
 */
export function connectionLine(retryNow) {
  const words = h("span", {});
  // A screen reader hears that the connection is lost, not each second of the wait.
  const said = h("span", { class: "unseen", role: "status" });
  const button = h("button", { type: "button", class: "small", on: { click: retryNow } }, "Try now");
  const bar = h("div", { class: "connection", "data-testid": "connection" }, h("span", { "aria-hidden": "true" }, words), button);
  const element = h("div", {}, said, bar);
  bar.hidden = true;
  let timer;

  return {
    element,
    draw(connection) {
      clearInterval(timer);
      bar.hidden = !connection.lost;
      const text = connection.lost ? "The connection is lost. The page tries again by itself." : "";
      if (said.textContent !== text) replace(said, text);
      if (!connection.lost) return;
      button.hidden = connection.kind !== "waiting";
      const tick = () => {
        const seconds = Math.max(0, Math.ceil((connection.until - Date.now()) / 1000));
        replace(words, connection.kind === "waiting" ? `The connection is lost. Next try in ${seconds} s.` : "The connection is lost. Trying again …");
      };
      tick();
      if (connection.kind === "waiting") timer = setInterval(tick, 1000);
    },
    close: () => clearInterval(timer),
  };
}
