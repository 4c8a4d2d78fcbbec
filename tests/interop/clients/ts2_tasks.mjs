// The official TypeScript client, second generation, in the tasks suite: it asks `server/discover` first and
// follows `requestState` by itself.

import { Client } from '@modelcontextprotocol/client';
import { expect, report } from './report.mjs';
import { checks } from './tasks.mjs';
import { transport } from './ts2_transport.mjs';

const [url, agent] = process.argv.slice(2);

const sdk = {
  name: 'ts2_auto',
  patient: true,
  async connect(to, user) {
    const capabilities = user ? { elicitation: { form: {}, url: {} } } : {};
    const options = { capabilities, versionNegotiation: { mode: 'auto' } };
    const client = new Client({ name: 'interop-ts2', version: '1.0.0' }, options);
    if (user) client.setRequestHandler('elicitation/create', ({ params }) => user.answer(params));
    await client.connect(transport(to));
    const version = client.getNegotiatedProtocolVersion();
    expect(version === '2026-07-28', `negotiated ${version}`);
    return client;
  },
  call: (client, params, options) => client.callTool(params, options),
  async watch(client, uri, onUpdate) {
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      if (params.uri === uri) onUpdate();
    });
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    const honored = subscription.honoredFilter.resourceSubscriptions ?? [];
    expect(honored.join() === uri, subscription.honoredFilter);
    return () => subscription.close();
  },
};

await report(checks(sdk, url, agent));
