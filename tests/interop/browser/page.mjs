// The checks of an MCP client in a web page. `page_ts1.mjs` and its neighbours each bring an SDK.
//
// Three modes: `open`; `key`, an API key in a header; `oauth`, from a 401 and nothing else to a token, by way of a real redirect
// of the page to the authorization server and back. Prints one line for each check to the console, then `done`.

const LIMIT = 20_000; // milliseconds for one check
const KEY = 'interop-key-0123456789';
const ECHOED = 'Hello, 世界 🌊';

const textOf = (result) => (result.content ?? []).map((block) => block.text ?? '').join('');
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function expect(condition, why) {
  if (!condition) throw new Error(typeof why === 'string' ? why : JSON.stringify(why));
}

async function check(name, action) {
  try {
    await Promise.race([
      action(),
      pause(LIMIT).then(() => {
        throw new Error('took too long');
      }),
    ]);
    console.log(`ok ${name}`);
    return true;
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error).slice(0, 500)}`);
    return false;
  }
}

/** What outlives the redirect to the authorization server. */
const kept = {
  get: (name) => JSON.parse(sessionStorage.getItem(name) ?? 'null') ?? undefined,
  set: (name, value) => sessionStorage.setItem(name, JSON.stringify(value)),
};

/** Gets tokens as a page does: by leaving for the authorization server and coming back. */
const provider = {
  redirectUrl: `${location.origin}/`,
  clientMetadata: {
    client_name: 'interop-browser',
    redirect_uris: [`${location.origin}/`],
    grant_types: ['authorization_code', 'refresh_token'],
  },
  clientInformation: () => kept.get('client'),
  saveClientInformation: (client) => kept.set('client', client),
  tokens: () => kept.get('tokens'),
  saveTokens: (tokens) => kept.set('tokens', tokens),
  codeVerifier: () => kept.get('verifier'),
  saveCodeVerifier: (verifier) => kept.set('verifier', verifier),
  saveDiscoveryState: (state) => kept.set('discovery', state),
  discoveryState: () => kept.get('discovery'),
  redirectToAuthorization(url) {
    location.href = url;
    return new Promise(() => {}); // the page is left
  },
};

/**
 * `sdk`: `open(url, { options, user })` → `{ client, transport }`, `finish(transport, params)`,
 * `call(client, params, options)`, `watch(client, uri, onUpdate)`, `hasSession`.
 */
export async function main(sdk) {
  const asked = new URLSearchParams(location.search);
  if (asked.has('url')) kept.set('run', Object.fromEntries(asked));
  const { mode, url, agent } = kept.get('run');
  const options = {
    open: {},
    key: { requestInit: { headers: { 'X-Api-Key': KEY, traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01` } } },
    oauth: { authProvider: provider },
  }[mode];
  if (mode === 'oauth' && asked.has('code')) {
    await check('token', async () => sdk.finish(sdk.open(new URL(url), { options }).transport, asked));
  }
  let connection;
  const connected = await check('connect', async () => {
    connection = sdk.open(new URL(url), { options, user: () => ({ action: 'accept', content: { reply: 'blue' } }) });
    await connection.client.connect(connection.transport);
  });
  if (connected) await checks(sdk, connection, { mode, url, agent });
  console.log('done');
}

async function checks(sdk, { client, transport }, { mode, url, agent }) {
  const call = (skill, args, options) => sdk.call(client, { name: `${agent}_${skill}`, arguments: args }, options);
  await check('tools', async () => {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    expect(names.includes(`${agent}_echo`), names);
  });
  await check('echo', async () => {
    const result = await call('echo', { text: ECHOED });
    expect(!result.isError && textOf(result).includes(ECHOED), result);
  });
  await check('stream', async () => {
    const seen = [];
    const result = await call('stream', { text: 'in pieces' }, { onprogress: ({ progress }) => seen.push(progress) });
    expect(!result.isError && textOf(result).includes('in pieces') && seen.length >= 3, [result, seen]);
  });
  await check('question', async () => {
    const result = await call('ask', { text: 'paint it' });
    expect(!result.isError && textOf(result).includes('The colour is blue'), result);
  });
  await check('cancel', async () => {
    const text = `30 seconds in a page of ${sdk.name} ${mode}`;
    const abort = new AbortController();
    const calling = call('work', { text }, { signal: abort.signal }).catch(() => undefined);
    await pause(500);
    abort.abort('enough');
    expect((await calling) === undefined, 'it ended');
    for (let look = 0; look < 50; look += 1) {
      if (textOf(await call('fate', { text })).trim().startsWith('canceled')) return;
      await pause(100);
    }
    throw new Error('the agent was not told');
  });
  if (mode === 'oauth') {
    // The rules deny one skill, so that the agent as a whole is denied: it could pick that skill.
    await check('whole_agent_is_denied', async () => {
      const args = { subagentUri: `a2a-agent://${agent}`, text: 'work 2' };
      const refusal = await sdk.call(client, { name: 'subagent_start', arguments: args }).catch(() => ({ isError: true }));
      expect(refusal.isError, refusal);
    });
  } else await check('updates', async () => {
    const begun = await sdk.call(client, { name: 'subagent_start', arguments: { subagentUri: `a2a-agent://${agent}`, text: 'work 2' } });
    let count = 0;
    const stop = await sdk.watch(client, begun.structuredContent.taskUri, () => (count += 1));
    while (count === 0) await pause(50);
    await stop();
  });
  await check('resource', async () => {
    const { contents } = await client.readResource({ uri: `a2a-agent://${agent}` });
    expect(JSON.stringify(contents).includes('echo'), contents);
  });
  if (mode === 'key') {
    await check('refusal_is_readable', async () => {
      const answer = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' });
      expect(answer.status === 401 && (await answer.json()).error, answer.status);
    });
  }
  await check('documents', async () => {
    // Read by pages that look for agents, before they have proved anything.
    const { origin, pathname } = new URL(url);
    const missing = await fetch(`${origin}/nothing`);
    expect(missing.status === 404, missing.status);
    if (mode === 'oauth') {
      const answer = await fetch(`${origin}/.well-known/oauth-protected-resource${pathname}`);
      expect((await answer.json()).resource === url, answer.status);
    }
  });
  await check('close', async () => {
    if (sdk.hasSession) await transport.terminateSession();
    await client.close();
  });
}
