// The official TypeScript client, first generation: `@modelcontextprotocol/sdk` as it comes.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { main } from './checks.mjs';
import { transport } from './ts1_transport.mjs';

await main(
  {
    async connect(url) {
      const client = new Client({ name: 'interop-ts1', version: '1.0.0' });
      await client.connect(transport(url));
      return client;
    },
    version: (client) => client.transport.protocolVersion,
    call: (client, params, onprogress) => client.callTool(params, undefined, { onprogress }),
  },
  '2025-11-25',
);
