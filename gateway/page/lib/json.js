// Reads and writes JSON of others: exact numbers, any depth, and no recursion that a deep value could exhaust.

/** The indentation stops growing here, else the text of a deep value would grow with the square of its depth. */
const MAX_INDENT = 24;

/** A whole number beyond 2^53, or one beyond all JavaScript numbers; it is shown and sent as it was written. */
export class ExactNumber {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }

  /** The nearest JavaScript number. */
  valueOf() {
    return Number(this.source);
  }

  /** Sends the number's own digits where the browser can (`JSON.rawJSON`), else the nearest number. */
  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

/**
 * Reads JSON. Whole numbers that would lose digits become {@link ExactNumber}, in browsers that tell a number's source.
 * @param {string} source
 * @returns {unknown}
 */
export function parseJson(source) {
  if (!/[0-9]{16}|[0-9][eE]/.test(source)) return JSON.parse(source);
  try {
    return JSON.parse(source, (_key, value, context) => {
      if (typeof value !== "number" || context?.source === undefined) return value;
      const isExact = Number.isFinite(value) && (Number.isSafeInteger(value) || !/^-?[0-9]+$/.test(context.source));
      return isExact ? value : new ExactNumber(context.source);
    });
  } catch (error) {
    // The reviver recurses, and a very deep value exhausts the stack where plain parsing does not.
    if (error instanceof RangeError) return JSON.parse(source);
    throw error;
  }
}

/**
 * Writes a value as indented JSON text. Never throws: a value without a JSON form is written as `null`.
 * @param {unknown} value
 * @returns {string}
 */
export function prettyJson(value) {
  const out = [];
  const stack = [{ value }];
  while (stack.length > 0) {
    const task = stack.pop();
    if (task.write !== undefined) {
      out.push(task.write);
      continue;
    }
    const depth = task.depth ?? 0;
    const entries = entriesOf(task.value);
    if (entries === null) {
      out.push(scalar(task.value));
      continue;
    }
    const [open, close] = Array.isArray(task.value) ? ["[", "]"] : ["{", "}"];
    if (entries.length === 0) {
      out.push(open + close);
      continue;
    }
    out.push(open);
    stack.push({ write: `\n${indent(depth)}${close}` });
    for (let index = entries.length - 1; index >= 0; index -= 1) {
      const [key, member] = entries[index];
      if (index < entries.length - 1) stack.push({ write: "," });
      stack.push({ value: member, depth: depth + 1 });
      stack.push({ write: `\n${indent(depth + 1)}${key === null ? "" : `${JSON.stringify(key)}: `}` });
    }
  }
  return out.join("");
}

/** @param {unknown} value @returns {[string | null, unknown][] | null} the members, or null for a scalar */
function entriesOf(value) {
  if (Array.isArray(value)) return value.map((member) => [null, member]);
  if (value !== null && typeof value === "object" && !(value instanceof ExactNumber)) return Object.entries(value);
  return null;
}

/** @param {unknown} value */
function scalar(value) {
  if (value instanceof ExactNumber) return value.source;
  if (typeof value === "number") return String(value);
  return JSON.stringify(value) ?? "null";
}

/** @param {number} depth */
function indent(depth) {
  return "  ".repeat(Math.min(depth, MAX_INDENT));
}
