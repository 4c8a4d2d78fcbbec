// How the second generation of the official TypeScript client gets a token; `ts2_oauth.mjs` and `ts2_auto_oauth.mjs` differ in options only.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

export const sdk = (settings) => ({
  open: (url, options) => ({
    client: new Client({ name: 'interop-ts2', version: '1.0.0' }, settings),
    transport: new StreamableHTTPClientTransport(url, options),
  }),
  finish: (transport, back) => transport.finishAuth(back),
  stepsUpWithRefresh: true,
});
