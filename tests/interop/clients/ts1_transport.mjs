// The transport of a client of the first generation: a URL, or over stdio the process of $INTEROP_STDIO (a JSON list).

import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const PROCESS = process.env.INTEROP_STDIO;

export function transport(url) {
  if (!PROCESS) return new StreamableHTTPClientTransport(new URL(url));
  const [command, ...args] = JSON.parse(PROCESS);
  const stdio = new StdioClientTransport({ command, args });
  // Over HTTP the SDK tells its transport; here the check of the revision needs it too.
  stdio.setProtocolVersion = (version) => void (stdio.protocolVersion = version);
  return stdio;
}
