// The official TypeScript client, first generation, in a web page.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { main } from './page.mjs';

await main({
  name: 'ts1',
  hasSession: true,
  open(url, { options, user }) {
    const client = new Client({ name: 'interop-browser', version: '1.0.0' }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, user ?? (() => ({ action: 'decline' })));
    return { client, transport: new StreamableHTTPClientTransport(url, options) };
  },
  finish: (transport, params) => transport.finishAuth(params.get('code')),
  call: (client, params, options) => client.callTool(params, undefined, options),
  async watch(client, uri, onUpdate) {
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      if (params.uri === uri) onUpdate();
    });
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
});
