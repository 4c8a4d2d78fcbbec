// How the second generation of the official TypeScript client is used; `ts2.mjs` and `ts2_auto.mjs` differ in options only.

import { Client } from '@modelcontextprotocol/client';
import { transport } from './ts2_transport.mjs';

export const sdk = (options) => ({
  async connect(url) {
    const client = new Client({ name: 'interop-ts2', version: '1.0.0' }, options);
    await client.connect(transport(url));
    return client;
  },
  version: (client) => client.getNegotiatedProtocolVersion(),
  call: (client, params, onprogress) => client.callTool(params, { onprogress }),
});
