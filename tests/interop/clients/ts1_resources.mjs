// The official TypeScript client, first generation, in the suite of resources: a session of 2025-11-25.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { expect } from './report.mjs';
import { main } from './resources.mjs';

const VERSION = '2025-11-25';

await main({
  name: 'ts1',
  version: VERSION,
  async connect(url, key) {
    const client = new Client({ name: 'interop-ts1', version: '1.0.0' });
    const requestInit = { headers: { 'X-API-Key': key } };
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    expect(client.transport.protocolVersion === VERSION, `negotiated ${client.transport.protocolVersion}`);
    return client;
  },
  call: (client, params) => client.callTool(params),
  async watch(client, uri, heard) {
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      if (params.uri === uri) heard();
    });
    const accepted = await client.subscribeResource({ uri }).catch(() => undefined);
    return accepted && (() => client.unsubscribeResource({ uri }));
  },
});
