// The transport of a client of the second generation: a URL, or over stdio the process of $INTEROP_STDIO (a JSON list).

import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const PROCESS = process.env.INTEROP_STDIO;

export function transport(url) {
  if (!PROCESS) return new StreamableHTTPClientTransport(new URL(url));
  const [command, ...args] = JSON.parse(PROCESS);
  return new StdioClientTransport({ command, args });
}
