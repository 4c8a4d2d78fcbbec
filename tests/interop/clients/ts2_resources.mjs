// The official TypeScript client, second generation, in the suite of resources: 2026-07-28, by `server/discover`.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { expect } from './report.mjs';
import { main } from './resources.mjs';

const VERSION = '2026-07-28';

await main({
  name: 'ts2_auto',
  version: VERSION,
  async connect(url, key) {
    const client = new Client({ name: 'interop-ts2', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
    const requestInit = { headers: { 'X-API-Key': key } };
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    const version = client.getNegotiatedProtocolVersion();
    expect(version === VERSION, `negotiated ${version}`);
    return client;
  },
  call: (client, params) => client.callTool(params),
  async watch(client, uri, heard) {
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      if (params.uri === uri) heard();
    });
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    if ((subscription.honoredFilter.resourceSubscriptions ?? []).join() !== uri) {
      await subscription.close();
      return undefined;
    }
    return () => subscription.close();
  },
});
