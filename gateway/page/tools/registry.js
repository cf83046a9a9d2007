// The components that draw tools, by the tool's name. Others extend the page by registering theirs here.

/**
 * @typedef {object} ToolCall
 * @property {string} callId
 * @property {string} runId
 * @property {string} name the tool's name
 * @property {unknown} input the arguments
 * @property {unknown} output the result; `null` while there is none
 * @property {string | null} error the reason of a failure
 * @property {"streaming" | "running" | "requires_action" | "complete" | "error"} status `requires_action`: the call waits for an answer
 *
 * @typedef {object} ToolContext
 * @property {Document} document
 * @property {object | null} message the message of the call; `null` where the call is shown outside its space
 * @property {ToolCall} call
 * @property {(result: unknown) => Promise<void>} submit sends the call's result; rejects if the gateway refuses it, and the
 *   card has then already shown why
 * @property {(value: unknown) => Node} text a node with a text of an agent, with deceptive characters escaped; a value that
 *   is not a string is written as JSON
 *
 * @callback ToolComponent
 * @param {ToolContext} context
 * @returns {Element}
 */

/** @type {Map<string, ToolComponent>} */
const components = new Map();

/**
 * Registers the component of a tool. A later registration of the same name replaces the earlier one, built-in ones too.
 * @param {string} name the tool's name, as the agent calls it
 * @param {ToolComponent} component is called again when the call changes; if it throws, or returns no element, the call is
 *   shown as JSON
 * @throws {TypeError} if the name is empty or the component is not a function
 */
export function register(name, component) {
  if (typeof name !== "string" || name === "") throw new TypeError("register: the name of a tool must be a text that is not empty");
  if (typeof component !== "function") throw new TypeError(`register: the component of ${name} must be a function`);
  components.set(name, component);
}

/**
 * The component of a tool.
 * @param {string} name
 * @returns {ToolComponent | undefined}
 */
export function componentOf(name) {
  return components.get(name);
}
