// The page's start: the token, the operator's components, and which view is shown.

import "./tools/builtin.js";
import { ApiError, onUnauthorized, request } from "./lib/api.js";
import { h, replace } from "./lib/dom.js";
import { learn, learnAgents } from "./lib/names.js";
import { followRoute } from "./lib/router.js";
import { forget, keepToken, takeTokenFromAddress, token } from "./lib/session.js";
import { forgetSpaces, refreshSpaces } from "./lib/spaces.js";
import { setTitle } from "./lib/title.js";
import { startWaiting, stopWaiting } from "./lib/waiting.js";
import { runView } from "./views/run.js";
import { runsView } from "./views/runs.js";
import { shell } from "./views/shell.js";
import { signInView } from "./views/sign_in.js";
import { spaceView } from "./views/space.js";
import { spacesView } from "./views/spaces.js";
import { unknownView } from "./views/unknown.js";
import { waitingView } from "./views/waiting.js";

const root = document.getElementById("app");
/** @type {() => void} ends what the signed-in page follows */
let leave = () => {};
let notice = "";

/** The operator's components. The gateway serves an empty module if there are none. */
async function loadExtensions() {
  try {
    await import(new URL("./extensions.js", import.meta.url).href);
  } catch (error) {
    notice = `The gateway's own components could not be loaded: ${error.message}`;
  }
}

function viewOf(route, me) {
  switch (route.name) {
    case "spaces": return spacesView();
    case "space": return spaceView(route.id, me);
    case "waiting": return waitingView();
    case "runs": return runsView();
    case "run": return runView(route.id);
    default: return unknownView();
  }
}

function showPage(me) {
  if (me.id) learn([{ id: me.id, name: me.name, kind: "user" }]);
  const frame = shell(me, { onSignOut: () => signOut("") });
  let view = null;
  const stopRoute = followRoute((route) => {
    // The first view of a loaded page must not take the focus from its beginning.
    const moves = view !== null || root.contains(document.activeElement);
    const isFirst = view === null;
    view?.close();
    view = viewOf(route, me);
    frame.show(view, route);
    if (isFirst) replace(root, notice ? h("p", { class: "page-notice", role: "status" }, notice) : null, frame.element);
    if (moves) view.heading.focus();
    setTitle(view.title);
    scrollTo(0, 0);
  });
  learnAgents();
  refreshSpaces();
  startWaiting();
  leave = () => {
    stopRoute();
    view?.close();
    frame.close();
    stopWaiting();
    forgetSpaces();
    leave = () => {};
  };
}

function showSignIn(reason) {
  const view = signInView({ reason, onToken: enter });
  replace(root, view.element);
  setTitle("Sign in");
  view.field.focus();
}

function signOut(reason) {
  leave();
  forget();
  showSignIn(reason);
}

/** Keeps a token if the gateway accepts it; throws why it does not. */
async function enter(value) {
  onUnauthorized(() => {});
  keepToken(value);
  try {
    const me = await request("GET", "api/me");
    if (me.subject !== "user" && me.subject !== "admin") {
      throw new ApiError(403, "forbidden", "This token belongs to a program. The page needs the token of a person.");
    }
    onUnauthorized(() => signOut("The gateway no longer accepts your token. Sign in again."));
    showPage(me);
  } catch (error) {
    // A gateway that cannot be reached says nothing about the token.
    if (error.status !== 0) forget();
    throw error;
  }
}

async function start() {
  leave();
  const value = token();
  if (!value) {
    showSignIn("");
    return;
  }
  try {
    await enter(value);
  } catch (error) {
    showSignIn(error.message);
  }
}

// The address names the view, so the link to the content must not change it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
takeTokenFromAddress();
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#token=")) return;
  takeTokenFromAddress();
  start();
});
await loadExtensions();
await start();
