// What a TypeScript MCP client must be able to do with an agent whose work takes long and who asks.
// Not a client by itself: `ts1_tasks.mjs` and `ts2_tasks.mjs` each bring an SDK; `report.mjs` runs
// the checks. `py_tasks.py` makes the same ones. The gateway's patience is small here: see `run`.

import { setTimeout as pause } from 'node:timers/promises';
import { expect, stateOf, textOf } from './report.mjs';

const PATIENCE = 14_000; // milliseconds within which any call must have said something
const UNDER_WAY = ['submitted', 'working'];
export const LOGIN = 'https://login.example/start?flow=interop';
export const CHUNKS = Array.from({ length: 1000 }, (_, index) => `${index};`).join('');

/** Answers questions, and remembers them. */
export class User {
  constructor(...answers) {
    this.answers = answers;
    this.asked = [];
  }

  answer(params) {
    this.asked.push(params);
    if (params.mode === 'url') return { action: 'accept' };
    const reply = this.answers.shift();
    return reply === undefined ? { action: 'decline' } : { action: 'accept', content: { reply } };
  }

  get questions() {
    return this.asked.map((params) => params.message);
  }
}

export const isUnderWay = (result) => UNDER_WAY.includes(stateOf(result));

/** Waits for a task with the tool that is there for it, until it is no longer under way. */
export async function settled(tool, taskId) {
  for (;;) {
    const result = await tool('subagent_wait', { taskId, seconds: 2 });
    if (!isUnderWay(result)) return result;
  }
}

/** The agent's `fate` skill tells whether it was told to stop. */
export async function agentCanceled(tool, agent, text) {
  for (let look = 0; look < 50; look += 1) {
    if (textOf(await tool(`${agent}_fate`, { text })).trim().startsWith('canceled')) return;
    await pause(100);
  }
  throw new Error('the agent was not told');
}

/** Signing in at an agent of 0.1, which knows only questions: the user says when it is done. */
export async function signedInByWords(run) {
  const user = new User('done');
  await run(user, 'You are signed in');
  expect(user.asked.length === 1 && user.questions[0].includes('Sign in to go on'), user.asked);
}

/**
 * `sdk`: `name`, `patient` (it follows `requestState` by itself), `connect(url, user?)`,
 * `call(client, params, options)`, `watch(client, uri, onUpdate)` which returns how to stop.
 */
export function checks(sdk, url, agent) {
  async function withClient(user, action) {
    const client = await sdk.connect(url, user);
    try {
      const tool = (name, args, options) => sdk.call(client, { name, arguments: args }, options);
      return await action(tool, client);
    } finally {
      await client.close();
    }
  }
  /** Calls a tool of the agent; no call may leave its client without a word for long. */
  async function call(tool, skill, text, options) {
    const began = Date.now();
    const result = await tool(`${agent}_${skill}`, { text }, options);
    expect(Date.now() - began < PATIENCE, `the call took ${Date.now() - began} ms`);
    return result;
  }
  async function started(tool, text) {
    const result = await tool('subagent_start', { subagentUri: `a2a-agent://${agent}`, text });
    const taskId = result.structuredContent?.taskId;
    expect(!result.isError && taskId, result);
    return [taskId, result];
  }
  const read = async (client, uri) => JSON.parse((await client.readResource({ uri })).contents[0].text);

  return {
    long_call: () =>
      withClient(undefined, async (tool) => {
        const seconds = sdk.patient ? 4 : 2;
        const told = [];
        const began = Date.now();
        const result = await call(tool, 'work', `${seconds}`, { onprogress: ({ message }) => told.push(message) });
        expect(!result.isError && textOf(result).includes(`Worked for ${seconds} seconds`), result);
        expect(Date.now() - began >= seconds * 1000 - 500, 'answered before the work was done');
        expect(told.some((message) => message?.includes('seconds gone')), `progress: ${told}`);
      }),
    minute: () =>
      withClient(undefined, async (tool) => {
        const said = await tool(`${agent}_work`, { text: '65' });
        const result = UNDER_WAY.includes(stateOf(said)) ? await settled(tool, said.structuredContent.taskId) : said;
        expect(!result.isError && textOf(result).includes('Worked for 65 seconds'), result);
      }),
    outlasts: () =>
      withClient(undefined, async (tool) => {
        const handle = await call(tool, 'work', '18');
        const taskId = handle.structuredContent?.taskId;
        expect(!handle.isError && taskId && stateOf(handle) === 'working', handle);
        const result = await settled(tool, taskId);
        expect(stateOf(result) === 'completed' && textOf(result).includes('Worked for 18 seconds'), result);
      }),
    async two_questions() {
      const user = new User('blue', 'large');
      await withClient(user, async (tool) => {
        const result = await call(tool, 'twice', 'paint it');
        expect(!result.isError && textOf(result).includes('The colour is blue, the size is large'), result);
        expect(user.questions.join() === 'Which colour?,Which size?', user.questions);
        for (const { requestedSchema } of user.asked) {
          expect(requestedSchema?.properties?.reply?.type === 'string', requestedSchema);
        }
      });
    },
    async asked_later() {
      const user = new User('red');
      await withClient(user, async (tool) => {
        const result = await call(tool, 'later', 'paint it');
        expect(!result.isError && textOf(result).includes('The colour is red'), result);
        expect(user.questions.join() === 'Which colour?', user.questions);
      });
    },
    async declined() {
      const user = new User();
      await withClient(user, async (tool) => {
        const result = await call(tool, 'twice', 'paint it');
        const taskId = result.structuredContent?.taskId;
        expect(taskId && stateOf(result) === 'input-required', result);
        expect(user.questions.join() === 'Which colour?', user.questions);
        const sent = await tool('subagent_send', { taskId, text: 'blue' });
        expect(!sent.isError, sent);
      });
    },
    not_asked: () =>
      withClient(undefined, async (tool) => {
        const result = await call(tool, 'twice', 'paint it');
        expect(!result.isError && result.structuredContent?.taskId, result);
        expect(stateOf(result) === 'input-required' && textOf(result).includes('Which colour?'), result);
      }),
    // The client gives its call up at once; the agent must hear of it.
    cancelled: () =>
      withClient(undefined, async (tool) => {
        const text = `30 seconds for ${sdk.name}`;
        const givenUp = new AbortController();
        const calling = tool(`${agent}_work`, { text }, { signal: givenUp.signal });
        setTimeout(() => givenUp.abort('enough'), 300);
        const answer = await calling.catch(() => undefined);
        expect(answer === undefined, answer);
        await agentCanceled(tool, agent, text);
      }),
    chunks: () =>
      withClient(undefined, async (tool) => {
        let result = await call(tool, 'chunks', '1000');
        if (isUnderWay(result)) result = await settled(tool, result.structuredContent.taskId); // an agent that is not quick
        const text = textOf(result);
        expect(!result.isError && text.includes(CHUNKS), `${text.length} characters: ${text.slice(0, 60)}…`);
      }),
    failed: () =>
      withClient(undefined, async (tool) => {
        const result = await call(tool, 'fail', 'x');
        expect(result.isError && textOf(result).includes('on purpose'), result);
      }),
    rejected: () =>
      withClient(undefined, async (tool) => {
        const result = await call(tool, 'reject', 'x');
        expect(result.isError && textOf(result).includes('That is not for me'), result);
      }),
    async signed_in() {
      const user = new User();
      await withClient(user, async (tool) => {
        const result = await call(tool, 'login', 'x');
        expect(!result.isError && textOf(result).includes('You are signed in'), result);
        expect(user.asked.length === 1 && user.asked[0].url === LOGIN, user.asked);
      });
    },
    subagent: () =>
      withClient(undefined, async (tool) => {
        const [taskId, begun] = await started(tool, 'twice');
        const links = begun.content.filter((block) => block.type === 'resource_link').map((block) => block.uri);
        const { taskUri } = begun.structuredContent;
        expect(links.join() === taskUri && taskUri === `a2a://task/${taskId}`, begun);
        for (const [question, text] of [['Which colour?', 'blue'], ['Which size?', 'large']]) {
          const asked = await settled(tool, taskId);
          expect(stateOf(asked) === 'input-required', asked);
          expect(asked.structuredContent.statusMessage?.includes(question), asked);
          const sent = await tool('subagent_send', { taskId, text });
          expect(!sent.isError && sent.structuredContent?.ok === true, sent);
        }
        const done = await settled(tool, taskId);
        expect(stateOf(done) === 'completed' && textOf(done).includes('blue, the size is large'), done);
        const got = await tool('subagent_get', { taskId });
        expect(stateOf(got) === 'completed' && got.structuredContent.taskId === taskId, got);
      }),
    subagent_cancelled: () =>
      withClient(undefined, async (tool) => {
        const text = `30 seconds as a subagent for ${sdk.name}`;
        const [taskId] = await started(tool, `work ${text}`);
        const canceled = await tool('subagent_cancel', { taskId });
        expect(!canceled.isError && canceled.structuredContent?.canceled === true, canceled);
        expect(stateOf(await settled(tool, taskId)) === 'canceled', 'the task is not canceled');
        await agentCanceled(tool, agent, text);
      }),
    subagent_unknown: () =>
      withClient(undefined, async (tool) => {
        for (const name of ['subagent_get', 'subagent_wait', 'subagent_cancel']) {
          const result = await tool(name, { taskId: 'nobody-has-this' });
          expect(result.isError, result);
        }
      }),
    task_resource: () =>
      withClient(undefined, async (tool, client) => {
        const [taskId, begun] = await started(tool, 'echo read me');
        await settled(tool, taskId);
        const seen = await read(client, begun.structuredContent.taskUri);
        expect(seen.taskId === taskId && seen.state === 'completed', seen);
        expect(JSON.stringify(seen.artifacts).includes('read me'), seen);
      }),
    // A task that is subscribed to tells of every change, its end included.
    watched: () =>
      withClient(undefined, async (tool, client) => {
        const [, begun] = await started(tool, 'work 3');
        const uri = begun.structuredContent.taskUri;
        let count = 0;
        let wake = () => {};
        const stop = await sdk.watch(client, uri, () => {
          count += 1;
          wake();
        });
        for (;;) {
          const changed = new Promise((resolve, reject) => {
            wake = resolve;
            setTimeout(() => reject(new Error(`no update in 5 s after ${count}`)), 5000).unref();
          });
          changed.catch(() => {});
          if ((await read(client, uri)).state === 'completed') break;
          await changed;
        }
        await stop();
        expect(count >= 2, `${count} updates`);
      }),
  };
}
