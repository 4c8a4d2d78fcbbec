// What a TypeScript client must manage on its way to a token, and what it may do with it.
// Not a client by itself: `ts1_oauth.mjs`, `ts2_oauth.mjs` and `ts2_auto_oauth.mjs` each bring an SDK. `py_oauth.py` makes the same checks.

import { expect, report, textOf } from './report.mjs';

const REDIRECT = 'http://127.0.0.1:9/callback'; // nobody listens: the redirect is read, not followed
const [GATEWAY, AGENT] = process.argv.slice(2);
const { origin: ORIGIN, pathname: PATH } = new URL(GATEWAY);
const PREFIX = PATH === '/mcp' ? `${AGENT}_` : ''; // one agent's own path needs none

/** One user's client, and what it asked for on its way; `sdk` opens its connections. */
class Journey {
  asked = [];
  consents = [];
  redirectUrl = REDIRECT;
  clientMetadata = { client_name: 'interop', redirect_uris: [REDIRECT], grant_types: ['authorization_code', 'refresh_token'] };

  constructor(sdk, { resource, refresh = true } = {}) {
    this.sdk = sdk;
    if (resource) this.validateResourceURL = async () => new URL(resource);
    if (!refresh) this.clientMetadata = { ...this.clientMetadata, grant_types: ['authorization_code'] };
  }

  // What the SDK asks of an OAuthClientProvider.
  clientInformation = () => this.registered;
  saveClientInformation = (registered) => void (this.registered = registered);
  tokens = () => this.kept;
  saveTokens = (tokens) => void (this.kept = tokens);
  saveCodeVerifier = (verifier) => void (this.verifier = verifier);
  codeVerifier = () => this.verifier;
  /** What a browser does: goes where it is sent, until that is the client's own place. */
  redirectToAuthorization = async (url) => {
    this.consents.push(Object.fromEntries(url.searchParams));
    const answer = await fetch(url, { redirect: 'manual' });
    const place = answer.headers.get('location') ?? '';
    expect(place.startsWith(`${REDIRECT}?`), `${answer.status} ${await answer.text()}`);
    this.back = new URL(place).searchParams;
    expect(this.back.has('code'), String(this.back));
  };

  fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (init?.method !== 'GET' || String(url) !== GATEWAY) this.asked.push(`${answer.status} ${String(url)}`);
    return answer;
  };

  /** Does something; if the user was sent to the issuer meanwhile, once more with what came back. */
  async through(transport, action) {
    const before = this.consents.length;
    try {
      return await action();
    } catch (error) {
      if (this.consents.length === before) throw error;
      await this.sdk.finish(transport(), this.back);
      return await action();
    }
  }

  async connect() {
    let connection;
    await this.through(
      () => connection.transport,
      async () => {
        connection = this.sdk.open(new URL(GATEWAY), { authProvider: this, fetch: this.fetch });
        await connection.client.connect(connection.transport);
      },
    );
    return {
      client: connection.client,
      listed: async () => (await connection.client.listTools()).tools.map((tool) => tool.name),
      call: (skill, text) =>
        this.through(
          () => connection.transport,
          () => connection.client.callTool({ name: `${PREFIX}${skill}`, arguments: { text } }),
        ),
    };
  }

  scopes = () => this.kept.scope.split(' ').sort().join(' ');
}

async function echo(connection) {
  const result = await connection.call('echo', 'let in');
  expect(!result.isError && textOf(result).includes('let in'), result);
}

const checks = (sdk) => ({
  async finds_its_way() {
    const journey = new Journey(sdk);
    const connection = await journey.connect();
    expect((await connection.listed()).includes(`${PREFIX}echo`), 'echo is not listed');
    await echo(connection);
    await connection.client.close();
    const issuer = journey.back.get('iss');
    const way = [
      `401 ${GATEWAY}`,
      `200 ${ORIGIN}/.well-known/oauth-protected-resource${PATH}`,
      `200 ${issuer}/.well-known/oauth-authorization-server`,
      `201 ${issuer}/register`,
      `200 ${issuer}/token`,
      `200 ${GATEWAY}`,
    ];
    // What was found may be looked at again after the redirect.
    const firsts = [...new Set(journey.asked)].slice(0, way.length);
    expect(JSON.stringify(firsts) === JSON.stringify(way), journey.asked);
    const [{ resource, scope }] = journey.consents;
    expect(resource === GATEWAY && scope === 'a2a.invoke', journey.consents);
    expect(journey.consents.length === 1, journey.consents);
  },

  async refused_with_a_token_for_another_resource() {
    for (const resource of ['https://elsewhere.example/mcp', `${GATEWAY}/${AGENT}`]) {
      const journey = new Journey(sdk, { resource });
      const outcome = await journey.connect().then(
        () => 'let in',
        () => 'refused',
      );
      expect(outcome === 'refused', `let in with a token for ${resource}`);
      expect(journey.kept?.access_token, 'it got no token');
      const ends = journey.asked.filter((one) => one.endsWith(` ${GATEWAY}`));
      expect(ends.length >= 2 && ends.every((one) => one.startsWith('401 ')), journey.asked);
    }
  },

  async steps_up() {
    const journey = new Journey(sdk, { refresh: sdk.stepsUpWithRefresh });
    const connection = await journey.connect();
    expect(!(await connection.listed()).includes(`${PREFIX}data`), 'data is listed before it may be used');
    expect(journey.scopes() === 'a2a.invoke', journey.scopes());
    const result = await connection.call('data', 'x');
    expect(!result.isError && JSON.stringify(result).includes('nested'), result);
    expect(journey.asked.includes(`403 ${GATEWAY}`), journey.asked);
    expect(journey.scopes() === 'a2a.data a2a.invoke', journey.scopes());
    expect(journey.consents.length === 2, journey.consents);
    await echo(connection);
    await connection.client.close();
    const again = await journey.connect();
    expect((await again.listed()).includes(`${PREFIX}data`), 'data is not listed after it');
    expect(journey.consents.length === 2, 'asked again');
    await again.client.close();
  },

  async refreshes() {
    const journey = new Journey(sdk);
    const connection = await journey.connect();
    await echo(connection);
    const before = journey.kept.access_token;
    journey.kept = { ...journey.kept, access_token: `${before}x` };
    await echo(connection);
    expect(![before, `${before}x`].includes(journey.kept.access_token), 'the same token');
    expect(journey.consents.length === 1, 'the user was asked');
    await connection.client.close();
  },

  ...(sdk.stepsUpWithRefresh
    ? {}
    : {
        // Known of this SDK: it refreshes instead, gets the same scopes, and gives up. If this fails, it has learned it.
        async does_not_step_up_while_it_has_a_refresh_token() {
          const journey = new Journey(sdk);
          const connection = await journey.connect();
          const error = await connection.call('data', 'x').catch((error) => error);
          expect(error.message?.includes('403 after trying upscoping'), error.message ?? error);
          expect(journey.scopes() === 'a2a.invoke' && journey.consents.length === 1, journey.scopes());
          await echo(connection);
          await connection.client.close();
        },
      }),
});

/** `sdk`: `{ open(url, options) → { client, transport }, finish(transport, back), stepsUpWithRefresh }`. */
export const main = (sdk) => report(checks(sdk));
