// The official TypeScript client, first generation, on its way to a token.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { main } from './oauth.mjs';

await main({
  open: (url, options) => ({
    client: new Client({ name: 'interop-ts1', version: '1.0.0' }),
    transport: new StreamableHTTPClientTransport(url, options),
  }),
  finish: (transport, back) => transport.finishAuth(back.get('code')),
  stepsUpWithRefresh: false,
});
