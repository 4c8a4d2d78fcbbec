// The official TypeScript client, first generation, that can be asked (form and URL), in the tasks suite.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { expect, report } from './report.mjs';
import { checks } from './tasks.mjs';
import { transport } from './ts1_transport.mjs';

const [url, agent] = process.argv.slice(2);

const sdk = {
  name: 'ts1',
  patient: false,
  async connect(to, user) {
    const capabilities = user ? { elicitation: { form: {}, url: {} } } : {};
    const client = new Client({ name: 'interop-ts1', version: '1.0.0' }, { capabilities });
    if (user) client.setRequestHandler(ElicitRequestSchema, ({ params }) => user.answer(params));
    await client.connect(transport(to));
    expect(client.transport.protocolVersion === '2025-11-25', `negotiated ${client.transport.protocolVersion}`);
    return client;
  },
  call: (client, params, options) => client.callTool(params, undefined, options),
  async watch(client, uri, onUpdate) {
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      if (params.uri === uri) onUpdate();
    });
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
};

await report(checks(sdk, url, agent));
