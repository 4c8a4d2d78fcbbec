// Requests to the routes of the admin listener.

/** A refusal of the gateway. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
    });
  } catch {
    throw new ApiError(0, 'the gateway cannot be reached');
  }
  const text = await response.text();
  if (!response.ok) {
    let message = text.trim();
    try {
      message = JSON.parse(text).error ?? message;
    } catch {
      // The text itself is the message.
    }
    throw new ApiError(response.status, message || `HTTP ${response.status}`);
  }
  return text;
}

/** Returns the JSON of a route. */
export const get = async (path) => JSON.parse(await request('GET', path));

/** Returns the text of a route. */
export const getText = (path) => request('GET', path);

/** Signs in with the token of operators. */
export const signIn = (token) => request('POST', '/api/session', { token });

/** Ends the session. */
export const signOut = () => request('DELETE', '/api/session');

/** Returns whether this browser is signed in, and how it can. */
export const session = () => get('/api/session');

const PROTOCOL = '2026-07-28';
let nextId = 1;

/**
 * Sends one request of MCP as the caller with this credential, and returns its result. Notifications
 * are passed to `onNotification`.
 */
export async function mcp({ method, name, params = {}, credential, signal, onNotification }) {
  const id = nextId++;
  const headers = {
    'Content-Type': 'application/json',
    'MCP-Protocol-Version': PROTOCOL,
    'Mcp-Method': method,
  };
  if (name) headers['Mcp-Name'] = headerName(name);
  if (credential) headers['X-Caller-Credential'] = credential;
  const meta = {
    'io.modelcontextprotocol/protocolVersion': PROTOCOL,
    'io.modelcontextprotocol/clientInfo': { name: 'mcp-a2a-gateway page', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
    progressToken: id,
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: meta } });
  const response = await fetch('/api/mcp', { method: 'POST', headers, body, signal, cache: 'no-store' });
  if (!response.ok) {
    const text = await response.text();
    let message = text;
    try {
      message = JSON.parse(text).error ?? text;
    } catch {
      // The text itself is the message.
    }
    throw new ApiError(response.status, message);
  }
  for await (const message of lines(response.body)) {
    if (message.error) throw new ApiError(message.error.code, message.error.message);
    if (message.id === id && 'result' in message) return message.result;
    if (message.method) onNotification?.(message.method, message.params ?? {});
  }
  throw new ApiError(0, 'the response ended without a result');
}

function headerName(name) {
  const isPlain = /^[\x21-\x7e]+$/.test(name) && !name.startsWith('=?base64?');
  if (isPlain) return name;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(name)))}?=`;
}

/** Reads JSON values, one on each line. */
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) if (part.trim()) yield JSON.parse(part);
  }
  if (rest.trim()) yield JSON.parse(rest);
}
