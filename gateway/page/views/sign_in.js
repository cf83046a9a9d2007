// The view that asks for an access token.

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";

/**
 * Makes the view.
 * @param {{ reason: string, onToken: (token: string) => Promise<void> }} options `reason`: why the person must sign in again
 * @returns {{ element: HTMLElement, field: HTMLInputElement }}
 */
export function signInView({ reason, onToken }) {
  const problem = h("div", { class: "slot", role: "alert" }, reason ? h("p", { class: "error" }, reason) : null);
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", autocapitalize: "none", "aria-describedby": "token-hint", required: true });
  const button = h("button", { type: "submit", class: "primary wide" }, "Sign in");
  const send = async (event) => {
    event.preventDefault();
    const value = field.value.trim();
    // A header cannot carry other characters, and no token has them.
    if (!/^[\x21-\x7e]+$/.test(value)) {
      replace(problem, h("p", { class: "error" }, value === "" ? "Paste your access token." : "An access token has no spaces and no characters beyond ASCII."));
      field.focus();
      return;
    }
    button.disabled = true;
    try {
      await onToken(value);
    } catch (error) {
      replace(problem, h("p", { class: "error" }, error.message));
      button.disabled = false;
      field.focus();
    }
  };
  const element = h("main", { id: "main", class: "sign-in", tabindex: "-1" },
    h("div", { class: "sign-in-card" },
      h("span", { class: "brand-mark big", "aria-hidden": "true" }, icon("gate")),
      h("h1", {}, "Sign in to Portcullis"),
      h("p", { class: "lead" }, "See your agents at work, answer their questions, and decide what they may do."),
      h("form", { novalidate: true, on: { submit: send } },
        h("label", { for: "token" }, "Access token"), field,
        h("p", { class: "hint", id: "token-hint" }, "The operator of the gateway gives you one. It stays in this tab and is forgotten when you close it."),
        problem, button)));
  return { element, field };
}
