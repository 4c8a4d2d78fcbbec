// Every row of the families of resources by its URI, and the prompts, by a TypeScript client.
// Not a client by itself: `ts1_resources.mjs` and `ts2_resources.mjs` each bring an SDK. Prints a line `ok ROW ASPECT` or
// `FAILED ROW ASPECT: why` for each. `py_resources.py` makes the same checks, and validates the schemas too.

import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from './report.mjs';

const LIMIT = 60_000; // milliseconds for one check
const UPDATE = 10_000; // milliseconds within which an update must come
const SHOWN = 600; // characters of a reason
const ROWS = JSON.parse(readFileSync(new URL('rows.json', import.meta.url), 'utf8'));
const ISO8601 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** Whether a member is there: `a.b`, or `a[].b` for every element of a list that is not empty. */
function has(value, path) {
  if (!path) return true;
  const [step, ...rest] = path.split('.');
  const name = step.replace(/\[\]$/, '');
  if (value === null || typeof value !== 'object' || !(name in value)) return false;
  if (!step.endsWith('[]')) return has(value[name], rest.join('.'));
  return value[name].length > 0 && value[name].every((element) => has(element, rest.join('.')));
}

async function late(limit, what) {
  await pause(limit, undefined, { ref: false });
  throw new Error(`${what} took too long`);
}

async function attempt(name, check) {
  try {
    await Promise.race([check(), late(LIMIT, name)]);
    console.log(`ok ${name}`);
    return 0;
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error).replaceAll('\n', ' | ').slice(0, SHOWN)}`);
    return 1;
  }
}

async function everything(client) {
  const uris = [];
  const templates = [];
  for (let cursor; ; ) {
    const page = await client.listResources(cursor ? { cursor } : {});
    uris.push(...page.resources.map((one) => one.uri));
    cursor = page.nextCursor;
    if (!cursor) break;
  }
  for (let cursor; ; ) {
    const page = await client.listResourceTemplates(cursor ? { cursor } : {});
    templates.push(...page.resourceTemplates.map((one) => one.uriTemplate));
    cursor = page.nextCursor;
    if (!cursor) return [uris, templates];
  }
}

/** The caller's task in its first phase, its stored value and its batches. */
class Belongings {
  constructor(sdk, client, agent) {
    Object.assign(this, { sdk, client, agent, name: `rows-${sdk.name}`, stored: 0 });
  }

  async tool(name, args) {
    const result = await this.sdk.call(this.client, { name, arguments: args });
    expect(!result.isError, result);
    return result.structuredContent;
  }

  async read(uri) {
    const { contents } = await this.client.readResource({ uri });
    expect(contents.length === 1, contents);
    return contents[0];
  }

  async shape(uri) {
    return JSON.parse((await this.read(uri)).text);
  }

  async hook(path) {
    const answer = await fetch(`${this.agent}${path}`, { method: 'POST' });
    expect(answer.ok, `${path}: ${answer.status}`);
  }

  async prepare() {
    const begun = { subagentUri: 'a2a-agent://phases', text: `phases ${this.name}` };
    this.task = (await this.tool('subagent_start', begun)).taskId;
    let seen;
    do {
      seen = await this.shape(`a2a://tasks/${this.task}`);
    } while (!seen.metadata.sparcPhase || seen.artifacts.length === 0);
    this.context = seen.contextId;
    await this.store();
    await this.batch(true);
    const held = [{ tool: 'phases_hold', arguments: { text: `hold-${this.name}` } }];
    await this.tool('batch_start', { calls: held, wait: false });
    do {
      seen = await this.shape('batchtools://queue/status');
    } while (!seen.operations.some((one) => one.startTime));
  }

  async store() {
    this.stored += 1;
    for (const key of ['task:1:specification', `task:${this.stored}:more`]) {
      await this.tool('memory_store', { namespace: 'rows', key, value: { note: `value ${this.stored}` }, ttl: 3600 });
    }
  }

  async batch(wait = false) {
    const calls = [0, 1].map((number) => ({ tool: 'phases_count', arguments: { text: `${number}` } }));
    await this.tool('batch_start', { calls, wait });
  }

  async configure() {
    this.stored += 1;
    await this.tool('batch_configure', { thresholds: { queueSize: 100 + this.stored } });
  }

  uri(row) {
    const named = {
      contextId: this.context, taskId: this.task, streamId: this.task, phase: 'specification', agentType: 'researcher',
      namespace: 'rows', key: 'task:1:specification', pattern: 'task:*', page: '7',
    };
    return row.replaceAll(/\{(\w+)\}/g, (_, name) => named[name]);
  }

  /** Changes the resource of a row. */
  change({ row, type }) {
    if (row.startsWith('sparc://agent') || row.startsWith('a2a://agents')) return this.hook('card');
    if (type === 'memory') return this.store();
    if (type === 'batchtools') return row.endsWith('settings') ? this.configure() : this.batch();
    return this.hook(`next/${this.name}`);
  }
}

function aspects(sdk, own, client, denied) {
  const spellings = ({ row, type }) => {
    const uri = own.uri(row);
    return type === 'static' ? [uri] : [uri, `mcp://mcp-a2a-gateway/${uri.replace('://', '/')}`];
  };
  async function shown(uri, row) {
    const content = await own.read(uri);
    const meta = content._meta;
    expect(content.uri === uri && content.mimeType === 'application/json', content);
    expect(meta.resourceId === own.uri(row.row) && meta.type === row.type, meta);
    expect(meta.cachePolicy === row.policy && meta.permissions.includes('read'), meta);
    expect(ISO8601.test(meta.lastModified) && meta.schema.endsWith(`#/$defs/${row.schema}`), meta);
    const value = JSON.parse(content.text);
    const missing = row.members.filter((path) => !has(value, path));
    expect(missing.length === 0, `no ${missing} in ${content.text}`);
  }
  return {
    async listed(row) {
      const [uris, templates] = await everything(client);
      const isTemplate = row.row.includes('{');
      const start = row.row.split('{')[0];
      const found = uris.includes(own.uri(row.row)) || (isTemplate && templates.some((one) => one.startsWith(start)));
      expect(found, `${row.row} is neither in ${uris} nor in ${templates}`);
    },
    async read(row) {
      for (const uri of spellings(row)) await shown(uri, row);
    },
    async updated(row) {
      const uri = own.uri(row.row);
      if (row.policy === 'static') {
        const result = await client.readResource({ uri });
        expect(sdk.version === '2025-11-25' || result.ttlMs === 30_000, result);
        const stop = await sdk.watch(client, uri, () => {});
        expect(stop, `${uri} cannot be subscribed to`);
        await stop();
        return;
      }
      let heard = () => {};
      const update = new Promise((resolve) => {
        heard = resolve;
      });
      const stop = await sdk.watch(client, uri, heard);
      expect(stop, `${uri} cannot be subscribed to`);
      await own.change(row);
      await Promise.race([update, late(UPDATE, `the update of ${uri}`)]);
      await stop();
    },
    async denied(row) {
      const [uris] = await everything(denied);
      for (const uri of spellings(row)) {
        expect(!uris.includes(uri), `${uri} is listed`);
        const answer = await denied.readResource({ uri }).catch((error) => error);
        expect(answer instanceof Error && answer.message.includes('no such resource'), `${uri}: ${JSON.stringify(answer)}`);
        expect(!(await sdk.watch(denied, uri, () => {})), `${uri} can be subscribed to`);
      }
    },
  };
}

function prompts(client) {
  const get = (name, args) => client.getPrompt({ name, arguments: args });
  const contents = async (args) => (await get('review', args)).messages.map((message) => message.content);
  const complete = async (name, argument, value) => {
    const told = await client.complete({ ref: { type: 'ref/prompt', name }, argument: { name: argument, value } });
    return told.completion.values.join();
  };
  return {
    async prompt_list() {
      const listed = (await client.listPrompts()).prompts;
      const review = listed.find((prompt) => prompt.name === 'review');
      expect(review?.title === 'Review' && listed.some((prompt) => prompt.name === 'phases_count'), listed);
      expect(review.arguments.map(({ name, required }) => `${name} ${required}`).join() === 'text true,style false', review);
    },
    async prompt_get() {
      const { messages } = await get('review', { text: 'clause {{style}}', style: 'short' });
      expect(messages[0].content.text === 'Review (short): clause {{style}}' && messages[0].role === 'user', messages);
      expect(messages[1].content.text === 'Which part first?' && messages[1].role === 'assistant', messages);
    },
    async prompt_image() {
      const image = (await contents({ text: 'x' })).find((content) => content.type === 'image');
      const begin = Buffer.from(image.data, 'base64').subarray(1, 4).toString();
      expect(image.mimeType === 'image/png' && begin === 'PNG', image);
    },
    async prompt_resource() {
      const { resource } = (await contents({ text: 'x', style: 'long' })).find((content) => content.type === 'resource');
      expect(resource.uri === 'docs://style/long' && resource.text === 'Be long.', resource);
    },
    async prompt_of_skill() {
      const { text } = (await get('phases_count')).messages[0].content;
      expect(text.startsWith('count this') && text.includes('phases_count'), text);
    },
    async prompt_without_argument() {
      const answer = await get('review', { style: 'short' }).catch((error) => error);
      expect(answer instanceof Error && answer.message.includes('missing'), JSON.stringify(answer));
    },
    async prompt_completion() {
      expect((await complete('review', 'style', 'sho')) === 'short,shorter', 'values of an argument');
      expect((await complete('phases_hold', 'text', 'hold')) === 'hold this', 'examples of a skill');
    },
    async template_completion() {
      const ref = { type: 'ref/resource', uri: 'memory://data/{namespace}/{key}' };
      const told = await client.complete({ ref, argument: { name: 'namespace', value: 'ro' } });
      expect(told.completion.values.includes('rows'), told);
    },
  };
}

/** `sdk`: `name`, `version`, `connect(url, key)`, `call(client, params)`, `watch(client, uri, heard)` which returns how to stop. */
export async function main(sdk) {
  const [url, agent, key, deniedKey] = process.argv.slice(2);
  const [client, denied] = [await sdk.connect(url, key), await sdk.connect(url, deniedKey)];
  const own = new Belongings(sdk, client, agent);
  await own.prepare();
  let failed = 0;
  for (const [aspect, check] of Object.entries(aspects(sdk, own, client, denied))) {
    for (const row of ROWS) failed += await attempt(`${row.row} ${aspect}`, () => check(row));
  }
  for (const [name, check] of Object.entries(prompts(client))) failed += await attempt(name, check);
  await own.hook(`next/hold-${own.name}`);
  process.exit(failed ? 1 : 0);
}
