// Makes text of agents, tools and people safe to show. Characters that are invisible, that change the writing direction
// or that control a terminal are written as escapes, so that a reader sees what a program sees.

/** Invisible in every place: controls, format characters, surrogates, private use, unassigned, fillers, blanks, and marks after the fourth on one character. */
const DECEPTIVE = String.raw`(?![\n\t])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\uFFFC]|(?<=\p{M}{4})\p{M}`;

/** In prose, an emoji may be joined and styled, and scripts that join their letters may use the joiners. */
const JOINED = String.raw`(?<=[\p{Emoji}\p{Emoji_Modifier}])[\uFE0F\u20E3]|(?<=[\p{Emoji}\uFE0F])\u200D(?=\p{Emoji})|(?<=(?![\p{sc=Latn}\p{sc=Grek}\p{sc=Cyrl}])[\p{L}\p{M}])[\u200C\u200D](?=[\p{L}\p{M}])`;

const PROSE = new RegExp(`(${JOINED})|(${DECEPTIVE})`, "gu");
const EXACT = new RegExp(String.raw`()(${DECEPTIVE}|(?! )\p{Zs})`, "gu");

/**
 * Writes one deceptive character as an escape, such as `\u{202e}`.
 * @param {string} character
 * @returns {string}
 */
function escapeCharacter(character) {
  return `\\u{${character.codePointAt(0).toString(16)}}`;
}

/**
 * Cuts a text into parts that are shown as they are and parts that are shown as escapes.
 * @param {string} text
 * @param {{ exact?: boolean }} [options] `exact` also escapes blanks other than the space, and joiners
 * @returns {{ text: string, escaped: boolean }[]}
 */
export function shownParts(text, { exact = false } = {}) {
  const source = String(text).replaceAll("\r\n", "\n");
  const parts = [];
  let start = 0;
  for (const match of source.matchAll(exact ? EXACT : PROSE)) {
    if (match[2] === undefined) continue;
    if (match.index > start) parts.push({ text: source.slice(start, match.index), escaped: false });
    parts.push({ text: escapeCharacter(match[2]), escaped: true });
    start = match.index + match[2].length;
  }
  if (start < source.length || parts.length === 0) parts.push({ text: source.slice(start), escaped: false });
  return parts;
}

/**
 * A text with its deceptive characters escaped, for attributes and the live region.
 * @param {unknown} text
 * @returns {string}
 */
export function shownText(text) {
  return shownParts(String(text ?? "")).map((part) => part.text).join("");
}

/**
 * A node with a text. Escapes are marked, so that they differ from the same characters written by an agent.
 * @param {unknown} text
 * @param {{ exact?: boolean }} [options] see {@link shownParts}
 * @returns {Node}
 */
export function textNodes(text, options) {
  const parts = shownParts(String(text ?? ""), options).map((part) => {
    const node = document.createTextNode(part.text);
    if (!part.escaped) return node;
    const mark = document.createElement("span");
    mark.className = "escape";
    mark.append(node);
    return mark;
  });
  if (parts.length === 1) return parts[0];
  // One node for the text, so that it stays one item in a box that lays out its children.
  const whole = document.createElement("span");
  whole.append(...parts);
  return whole;
}

/**
 * The beginning of a text, at most `limit` UTF-16 units, never ending within a character.
 * @param {string} text
 * @param {number} limit
 * @returns {string}
 */
export function beginning(text, limit) {
  if (text.length <= limit) return text;
  const cutsPair = /[\uD800-\uDBFF]/.test(text[limit - 1]);
  return text.slice(0, cutsPair ? limit - 1 : limit);
}

/**
 * One line of at most `limit` units for lists and announcements; a longer text ends with an ellipsis.
 * @param {unknown} text
 * @param {number} [limit]
 * @returns {string}
 */
export function summary(text, limit = 140) {
  // Only the beginning is searched for blanks: a text may have millions of characters.
  const source = String(text ?? "");
  const line = beginning(source, limit * 4).replace(/\s+/g, " ").trim();
  const cut = beginning(line, limit);
  return cut.length < line.length || source.length > limit * 4 ? `${cut}…` : cut;
}
