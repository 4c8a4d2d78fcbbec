// How the second generation of the official TypeScript client is used in a web page; the pages differ in options only.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

export const sdk = (name, settings) => ({
  name,
  hasSession: !settings.versionNegotiation,
  open(url, { options, user }) {
    const capabilities = { elicitation: {} };
    const client = new Client({ name: 'interop-browser', version: '1.0.0' }, { capabilities, ...settings });
    client.setRequestHandler('elicitation/create', user ?? (() => ({ action: 'decline' })));
    return { client, transport: new StreamableHTTPClientTransport(url, options) };
  },
  finish: (transport, params) => transport.finishAuth(params),
  call: (client, params, options) => client.callTool(params, options),
  async watch(client, uri, onUpdate) {
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      if (params.uri === uri) onUpdate();
    });
    if (!settings.versionNegotiation) {
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    }
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    return () => subscription.close();
  },
});
