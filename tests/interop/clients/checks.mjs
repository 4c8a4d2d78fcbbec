// What a TypeScript MCP client must be able to do with one agent behind the gateway.
// Not a client by itself: `ts1.mjs`, `ts2.mjs` and `ts2_auto.mjs` each bring an SDK.
// Prints one line per check and exits 1 if any failed. `py_checks.py` makes the same checks.

const LIMIT = 20_000; // milliseconds for one check
const ECHOED = 'Hello, 世界 🌊';
const STREAMED = 'Grüße, streamed in several pieces';

const textOf = (result) => result.content.map((block) => (block.type === 'text' ? block.text : '')).join('');

function expect(condition, why) {
  if (!condition) throw new Error(typeof why === 'string' ? why : JSON.stringify(why));
}

// `sdk.call(name, arguments, onprogress?)`: the one thing that the SDKs spell differently.
function checks(sdk, client, agent) {
  const call = (skill, args, onprogress) => sdk.call(client, { name: `${agent}_${skill}`, arguments: args }, onprogress);
  return {
    async tools() {
      const listed = (await client.listTools()).tools.map((tool) => tool.name);
      const missing = ['echo', 'stream', 'slow', 'ask', 'fail', 'data'].filter(
        (skill) => !listed.includes(`${agent}_${skill}`),
      );
      expect(missing.length === 0, `not listed: ${missing}`);
    },
    async echo() {
      const result = await call('echo', { text: ECHOED });
      expect(!result.isError && textOf(result).includes(ECHOED), result);
    },
    async stream() {
      const seen = [];
      const result = await call('stream', { text: STREAMED }, ({ progress }) => seen.push(progress));
      expect(!result.isError && textOf(result).includes(STREAMED), result);
      const ordered = seen.every((value, index) => index === 0 || value >= seen[index - 1]);
      expect(seen.length >= 3 && ordered, `progress: ${seen}`);
    },
    async slow() {
      const result = await call('slow', { text: 'late' });
      expect(!result.isError && textOf(result).includes('late'), result);
    },
    async data() {
      const result = await call('data', { text: 'x' });
      expect(!result.isError && JSON.stringify(result).includes('nested'), result);
    },
    async fail() {
      const result = await call('fail', { text: 'x' });
      expect(result.isError && textOf(result).includes('on purpose'), result);
    },
    async bad_arguments() {
      const result = await call('echo', { text: { not: 'a string' } });
      expect(result.isError, result);
    },
    async ask() {
      const asked = await call('ask', { text: 'paint it' });
      const taskId = asked.structuredContent?.taskId;
      expect(taskId, asked);
      const answered = await call('ask', { taskId, text: 'blue' });
      expect(!answered.isError && textOf(answered).includes('The colour is blue'), answered);
    },
    async unknown_tool() {
      const result = await call('nothing', { text: 'x' }).catch(() => ({ isError: true }));
      expect(result.isError, result);
    },
    async resources() {
      const uri = `a2a-agent://${agent}`;
      const listed = (await client.listResources()).resources.map((one) => one.uri);
      expect(listed.includes(uri), `${uri} not in ${listed}`);
      const { contents } = await client.readResource({ uri });
      expect(JSON.stringify(contents).includes('echo'), contents);
    },
  };
}

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('took too long')), LIMIT);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function attempt(name, action) {
  try {
    await within(action());
    console.log(`ok ${name}`);
    return true;
  } catch (error) {
    console.log(`FAILED ${name}: ${error}`);
    return false;
  }
}

/** `sdk`: `{ connect(url), version(client, transport), call(client, params, onprogress) }`. */
export async function main(sdk, version) {
  const [url, agent] = process.argv.slice(2);
  let client;
  let passed = await attempt('connect', async () => {
    client = await sdk.connect(new URL(url));
    const negotiated = sdk.version(client);
    expect(negotiated === version, `negotiated ${negotiated}`);
  });
  if (passed) {
    for (const [name, check] of Object.entries(checks(sdk, client, agent))) {
      passed = (await attempt(name, check)) && passed;
    }
    await within(client.close());
  }
  process.exit(passed ? 0 : 1);
}
