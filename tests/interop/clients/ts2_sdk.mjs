// How the second generation of the official TypeScript client is used; `ts2.mjs` and `ts2_auto.mjs` differ in options only.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

export const sdk = (options) => ({
  async connect(url) {
    const client = new Client({ name: 'interop-ts2', version: '1.0.0' }, options);
    await client.connect(new StreamableHTTPClientTransport(url));
    return client;
  },
  version: (client) => client.getNegotiatedProtocolVersion(),
  call: (client, params, onprogress) => client.callTool(params, { onprogress }),
});
