// The access token. It is kept in this tab's session storage, and never in an address, a cookie or the page.

const KEY = "portcullis.token";
const DRAFT = "portcullis.draft.";

/** @returns {string | null} the token of this tab */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** @param {string} value */
export function keepToken(value) {
  sessionStorage.setItem(KEY, value);
}

/** Forgets the token and all unsent texts. */
export function forget() {
  sessionStorage.clear();
}

/** Takes a token from `#token=…` once, and removes it from the address and from the tab's history. */
export function takeTokenFromAddress() {
  const match = /^#token=([^&]+)/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    keepToken(decodeURIComponent(match[1]).trim());
  } catch {
    // The fragment is not valid percent-encoding: there is no token in it, and the page asks for one.
  }
}

/** @param {string} spaceId @returns {string} the text that was not sent in this space */
export function draftOf(spaceId) {
  return sessionStorage.getItem(DRAFT + spaceId) ?? "";
}

/** @param {string} spaceId @param {string} text */
export function keepDraft(spaceId, text) {
  try {
    if (text) sessionStorage.setItem(DRAFT + spaceId, text);
    else sessionStorage.removeItem(DRAFT + spaceId);
  } catch {
    // The storage is full: the text is still in the field, and only a reload would lose it.
  }
}
