// Loaded before the conformance suite, which has no option for a token. Adds the token to every request to the server
// under test, and changes nothing else of the request.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// The suite's own copy of undici: its requests and Node's `fetch` share one dispatcher.
const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])('undici');

const token = readFileSync(process.env.MCP_TOKEN_FILE, 'utf8').trim();

const withToken = (dispatch) => (request, handler) => {
  if (String(request.origin) !== process.env.MCP_ORIGIN) return dispatch(request, handler);
  const given = request.headers ?? {};
  const headers = Array.isArray(given)
    ? [...given, 'authorization', `Bearer ${token}`]
    : { ...(Symbol.iterator in given ? Object.fromEntries(given) : given), authorization: `Bearer ${token}` };
  return dispatch({ ...request, headers }, handler);
};

setGlobalDispatcher(new Agent().compose(withToken));
