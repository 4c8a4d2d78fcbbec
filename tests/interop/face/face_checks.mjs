// What a JavaScript A2A client must be able to do with one agent, directly or through the gateway's A2A face.
// Not a client by itself: `face_js03.mjs` and `face_js1.mjs` each bring an SDK. `face_checks.py` makes the same
// checks and says how they are run; `facts.json` has what an agent cannot, with the reason.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const LIMIT = 60_000; // milliseconds for one check
const ECHOED = 'Hello, 世界 🌊';
const STREAMED = 'Grüße, streamed in several pieces';
const CHUNKS = Array.from({ length: 1000 }, (_, index) => `${index};`).join('');
const NOT_FOUND = [-32001];
const NOT_CANCELABLE = [-32002];
const UNSUPPORTED = [-32601, -32004, -32003];
const FACTS = JSON.parse(readFileSync(new URL('./facts.json', import.meta.url)));
const CODES = {
  TaskNotFound: -32001,
  TaskNotCancelable: -32002,
  PushNotificationNotSupported: -32003,
  UnsupportedOperation: -32004,
  MethodNotFound: -32601,
};

function expect(condition, why) {
  if (!condition) throw new Error(typeof why === 'string' ? why : JSON.stringify(why));
}

/** The code of an error, however the SDK tells it. */
function codeOf(error) {
  const name = Object.keys(CODES).find((one) => `${error.constructor?.name} ${error.name}`.includes(one));
  // On streams 0.3 has it in the words only.
  const said = Number(/\(Code: (-\d+)\)/.exec(error.message)?.[1]);
  return error.errorResponse?.error?.code ?? (name ? CODES[name] : (error.code ?? error.cause?.code ?? said));
}

async function refused(promise, codes) {
  const error = await promise.then(
    (result) => ({ message: `not refused: ${JSON.stringify(result)}` }),
    (one) => one,
  );
  expect(codes.includes(codeOf(error)), `${codeOf(error)}: ${error.name} ${error.message}`);
}

async function all(events) {
  const seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

/** The text of the artifact that these events made. */
function joined(events) {
  let text = '';
  for (const event of events) {
    if (event.text !== undefined) text = event.append ? text + event.text : event.text;
  }
  return text;
}

/** The client's own webhook: what was delivered to it, and with which token. */
async function webhook() {
  const heard = [];
  let wake = () => {};
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    // The Rust SDK writes the name without X.
    const token = request.headers['x-a2a-notification-token'] ?? request.headers['a2a-notification-token'];
    if (request.method === 'POST') heard.push([token, body]);
    response.end(new URL(request.url, 'http://own').searchParams.get('validationToken') ?? '');
    wake();
  });
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${server.address().port}/heard`,
    close: () => server.close(),
    /** Waits for the notification that this task is over; every one must name it and have the token. */
    async toldOfEnd(task) {
      for (;;) {
        const arrived = new Promise((resolve) => {
          wake = resolve;
        });
        for (const [token, body] of heard.splice(0)) {
          expect(token === 'interop-token', `token: ${token}`);
          expect(body.includes(JSON.stringify(task)), `${task} is not in ${body}`);
          if (body.toLowerCase().includes('completed')) return;
        }
        await arrived;
      }
    },
  };
}

function checks({ a, b, mode, url, agent }) {
  const facts = FACTS[agent];
  const base = url.replace(/\/$/, '');

  /** A task whose stream stays open meanwhile. */
  async function underWay(text, action) {
    const stream = a.stream(text);
    const { value } = await stream.next();
    all(stream).catch(() => {}); // until this process ends
    await action(value);
  }

  // A URL below that of the agent, or an address for gRPC, which has no path.
  const isOwn = (one) => one.startsWith(base) || /^(https?:\/\/)?[^/]+\/?$/.test(one);

  const named = {
    async card() {
      const card = await a.card();
      expect(card.urls.length > 0 && card.urls.every(isOwn), card);
      expect(['echo', 'work', 'ids'].every((one) => card.skills.includes(one)) && !card.skills.includes('more'), card);
    },
    async send() {
      const task = await a.send(`echo ${ECHOED}`);
      expect(task.state === 'completed' && task.text === ECHOED, task);
    },
    async stream() {
      const seen = await all(a.stream(`stream ${STREAMED}`));
      const words = seen.filter((event) => event.state === 'working').map((event) => event.words);
      expect(words.includes('50 percent done'), seen);
      expect(joined(seen) === STREAMED && seen.at(-1).state === 'completed', seen);
      expect(new Set(seen.map((event) => event.id)).size === 1, seen);
    },
    async chunks() {
      const seen = await all(a.stream('chunks 1000'));
      expect(joined(seen) === CHUNKS && seen.at(-1).state === 'completed', joined(seen).slice(0, 80));
    },
    async get() {
      const sent = await a.send('echo once more');
      const got = await a.get(sent.id);
      for (const member of ['id', 'context', 'state', 'text']) {
        expect(got[member] === sent[member] && got[member], { member, got, sent });
      }
    },
    async data() {
      const { data } = await a.send('x', undefined, { skillId: 'data' });
      const [{ text, list, nested }] = data;
      expect(data.length === 1 && text === 'x' && list.join() === '1,2,3' && nested.ok === true, data);
    },
    async failed() {
      const task = await a.send('fail x');
      expect(task.state === 'failed' && task.words.includes('on purpose'), task);
    },
    async rejected() {
      const task = await a.send('reject x');
      const wanted = facts.rejected ? 'failed' : 'rejected';
      expect(task.state === wanted && task.words.includes('That is not for me'), task);
    },
    // A question answered by a plain send, a second one by a stream.
    async follow_up() {
      const asked = await a.send('twice paint it');
      expect(asked.state === 'input-required' && asked.words === 'Which colour?', asked);
      const more = await a.send('blue', asked);
      expect(more.state === 'input-required' && more.words === 'Which size?', more);
      expect(more.id === asked.id && more.context === asked.context, more);
      const seen = await all(a.stream('large', asked));
      expect(joined(seen) === 'The colour is blue, the size is large', seen);
      expect(seen.at(-1).state === 'completed' && seen.at(-1).id === asked.id, seen);
    },
    async asked_on_stream() {
      const seen = await all(a.stream('ask paint it'));
      const last = seen.at(-1);
      expect(last.state === 'input-required' && last.words === 'Which colour?', seen);
      const done = await a.send('green', last);
      expect(done.state === 'completed' && done.text.includes('The colour is green'), done);
    },
    async cancel() {
      const words = `60 ${crypto.randomUUID()}`;
      await underWay(`work ${words}`, async (task) => {
        const canceled = await a.cancel(task.id);
        expect(canceled.state === 'canceled' && canceled.id === task.id, canceled);
        const got = await a.get(task.id);
        expect(got.state === 'canceled', got);
        const fate = await a.send(`fate ${words}`);
        expect(fate.text === 'canceled', fate);
      });
    },
    async cancel_finished() {
      const task = await a.send('echo done');
      if (!facts.cancel_finished) return refused(a.cancel(task.id), NOT_CANCELABLE);
      const canceled = await a.cancel(task.id);
      return expect(canceled.state === 'canceled', canceled);
    },
    async unknown() {
      for (const unknown of [crypto.randomUUID(), 'nobody has this']) {
        await refused(a.get(unknown), NOT_FOUND);
        await refused(a.cancel(unknown), NOT_FOUND);
      }
    },
    async list() {
      if (facts.list) return refused(a.list(), UNSUPPORTED);
      const first = await a.send('echo one');
      const second = await a.send('echo two');
      const listed = (await a.list()).map((task) => task.id);
      expect(listed.includes(first.id) && listed.includes(second.id), listed);
      const own = (await a.list(first.context)).map((task) => task.id);
      return expect(own.join() === first.id, own);
    },
    // A second stream of the same task, to its end; the first stays open, since some agents end with it.
    resubscribe: () =>
      underWay('work 4', async (task) => {
        if (facts.resubscribe) return refused(a.resubscribe(task.id).next(), UNSUPPORTED);
        const seen = await all(a.resubscribe(task.id));
        expect(seen.every((event) => event.id === task.id), seen);
        if (seen.at(-1).state !== 'completed' && facts.resubscribe_cut) {
          const ended = await a.get(task.id);
          return expect(ended.state === 'completed' && ended.text === 'Worked for 4 seconds', [...seen, ended]);
        }
        expect(seen.at(-1).state === 'completed', seen);
        return expect(joined(seen).includes('Worked for 4 seconds'), seen);
      }),
    async push() {
      const own = await webhook();
      await underWay('work 6', async ({ id: task }) => {
        const made = await a.setPush({ task, id: 'first', url: own.url, token: 'interop-token' });
        expect(made.url === own.url && made.task === task, made);
        const got = await a.getPush(task, made.id || 'first');
        expect(got.url === own.url && got.task === task, got);
        await own.toldOfEnd(task);
      });
      own.close();
    },
    push_listed: () =>
      underWay('work 6', async ({ id: task }) => {
        if (facts.push_listed) {
          // A server that has the route without anything behind it fails, which has no reason by HTTP+JSON; by gRPC it is
          // INTERNAL or NOT_FOUND, of which 0.3 makes an unknown task.
          const fails = facts.push_list_fails ? [-32603, NaN, 13, 5, ...NOT_FOUND] : [];
          await refused(a.listPush(task), [...UNSUPPORTED, ...fails]);
          return refused(a.deletePush(task, 'first'), [...UNSUPPORTED, ...fails]);
        }
        const config = { task, id: 'first', url: 'http://127.0.0.1:9/', token: 't' };
        await a.setPush(config);
        const [one, ...others] = await a.listPush(task);
        expect(one.task === task && one.id === 'first' && one.url === config.url && others.length === 0, one);
        await a.deletePush(task, 'first');
        return expect((await a.listPush(task)).length === 0, 'not deleted');
      }),
    async extended() {
      const card = await a.extended();
      expect(card.skills.includes('more') === !facts.extended, card);
      if (mode !== 'direct') expect(card.urls.every(isOwn), card);
    },
    // Whether the client sees the agent's own ids: only where nobody has to prove who it is.
    async ids() {
      const task = await a.send('ids');
      const shown = [task.id, task.context];
      const known = task.text.split(' ');
      if (mode !== 'keys') return expect(known.join() === shown.join(), { shown, known });
      return expect(!known.some((one) => shown.includes(one)), { shown, known });
    },
  };
  if (mode !== 'keys') return named;
  return {
    ...named,
    async other_caller() {
      const asked = await a.send('ask paint it');
      await refused(b.get(asked.id), NOT_FOUND);
      await refused(b.cancel(asked.id), NOT_FOUND);
      await refused(b.send('red', asked), NOT_FOUND);
      const config = { task: asked.id, id: 'first', url: 'http://127.0.0.1:9/', token: 't' };
      await refused(b.setPush(config), NOT_FOUND);
      const done = await a.send('blue', asked);
      expect(done.text === 'The colour is blue', done);
    },
    async own_list() {
      if (facts.list) return;
      const mine = await a.send('echo mine');
      const theirs = await b.send('echo theirs');
      const listed = async (client) => (await client.list()).map((task) => task.id);
      expect((await listed(a)).includes(mine.id), 'not in its own list');
      const others = await listed(b);
      expect(others.includes(theirs.id) && !others.includes(mine.id), others);
    },
    async no_key() {
      const card = await fetch(`${base}/.well-known/agent-card.json`);
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 'x' } });
      const call = await fetch(base, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
      expect(card.status === 401 && call.status === 401, `${card.status} ${call.status}`);
    },
  };
}

async function late() {
  await pause(LIMIT, undefined, { ref: false });
  throw new Error('took too long');
}

/** Runs a check; they run at once, since each has tasks of its own. */
async function attempt(name, check) {
  try {
    await Promise.race([check(), late()]);
    console.log(`ok ${name}`);
    return true;
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error).replaceAll('\n', ' | ').slice(0, 900)}`);
    return false;
  }
}

/** `sdk`: `connect(url, fetch, headers)` and `lacks`, the checks that this client has no words for, with the reason. */
export async function main(sdk, mode, url, agent, ...keys) {
  const connect = (key) => {
    const withKey = (to, init) => fetch(to, { ...init, headers: { ...init?.headers, 'x-api-key': key } });
    return sdk.connect(`${url.replace(/\/$/, '')}/`, key ? withKey : undefined, key ? { 'x-api-key': key } : {});
  };
  try {
    const [a, b] = await Promise.all([connect(keys[0]), keys[1] && connect(keys[1])]);
    const wanted = Object.entries(checks({ a, b, mode, url, agent })).filter(([name]) => !(name in sdk.lacks));
    for (const [name, reason] of Object.entries(sdk.lacks)) console.log(`left out ${name}: ${reason}`);
    const results = await Promise.all(wanted.map(([name, check]) => attempt(name, check)));
    process.exit(results.every(Boolean) ? 0 : 1);
  } catch (error) {
    console.log(`FAILED connect: ${String(error.stack).replaceAll('\n', ' | ')}`);
    process.exit(1);
  }
}
