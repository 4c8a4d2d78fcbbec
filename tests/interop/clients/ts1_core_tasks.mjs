// The official TypeScript client, first generation, that runs calls as tasks of the core (2025-11-25): `callToolStream`
// asks for a task, polls it, and fetches its result. Not here: the same client without tasks, `ts1_tasks.mjs`.

import { setTimeout as pause } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { expect, report, textOf } from './report.mjs';
import { agentCanceled, CHUNKS, LOGIN, signedInByWords, User } from './tasks.mjs';
import { transport } from './ts1_transport.mjs';

const [url, agent] = process.argv.slice(2);
const RELATED = 'io.modelcontextprotocol/related-task';

async function withClient(user, action) {
  const capabilities = user ? { elicitation: { form: {}, url: {} } } : {};
  const client = new Client({ name: 'interop-ts1-core', version: '1.0.0' }, { capabilities });
  if (user) client.setRequestHandler(ElicitRequestSchema, ({ params }) => user.answer(params));
  await client.connect(transport(url));
  await client.listTools(); // the SDK learns here which tools run as tasks
  try {
    return await action(client.experimental.tasks, client);
  } finally {
    await client.close();
  }
}

/** Runs a tool as a task: what came on the way, and how it ended. */
async function run(tasks, skill, text) {
  const seen = [];
  for await (const message of tasks.callToolStream({ name: `${agent}_${skill}`, arguments: { text } })) {
    seen.push(message);
  }
  const last = seen.at(-1);
  return { created: seen[0].task, states: seen.filter((one) => one.type === 'taskStatus').map((one) => one.task), last };
}

async function ended(tasks, skill, text, words) {
  const { created, states, last } = await run(tasks, skill, text);
  expect(created, `no task: ${JSON.stringify(last)}`);
  expect(last.type === 'result' && !last.result.isError, `${last.error ?? JSON.stringify(last)}`);
  expect(textOf(last.result).includes(words), last.result);
  return { created, states, result: last.result };
}

/** A failed task: the SDK shows only that it failed, so the words must be in its status, and the result behind it. */
async function failed(tasks, skill, words) {
  const { created, states, last } = await run(tasks, skill, 'x');
  expect(created && last.type === 'error', last);
  const status = states.at(-1);
  expect(status.status === 'failed' && status.statusMessage?.includes(words), status);
  const result = await tasks.getTaskResult(created.taskId, CallToolResultSchema);
  expect(result.isError && textOf(result).includes(words), result);
}

/** A task that was only created: what follows is up to the check. */
async function begin(client, skill, text) {
  const params = { name: `${agent}_${skill}`, arguments: { text } };
  const stream = client.experimental.tasks.callToolStream(params, undefined, { task: { ttl: 600_000 } });
  const { value } = await stream.next();
  expect(value.type === 'taskCreated', `${value.error ?? JSON.stringify(value)}`);
  return value.task;
}

async function code(promise) {
  return promise.then(
    () => 'no error',
    (error) => error.code,
  );
}

await report({
  declared: () =>
    withClient(undefined, async (_, client) => {
      const { tasks } = client.getServerCapabilities();
      expect(tasks?.requests?.tools?.call && tasks.cancel, tasks);
      const { tools } = await client.listTools();
      const support = tools.find((tool) => tool.name === `${agent}_work`)?.execution?.taskSupport;
      expect(support === 'optional', `taskSupport ${support}`);
    }),
  minute: () => withClient(undefined, (tasks) => ended(tasks, 'work', '65', 'Worked for 65 seconds')),
  long_call: () =>
    withClient(undefined, async (tasks) => {
      const { created, states, result } = await ended(tasks, 'work', '6', 'Worked for 6 seconds');
      expect(created.status === 'working' && states.length >= 2, states);
      expect(states.every((task) => task.taskId === created.taskId), states);
      expect(states.some((task) => task.statusMessage?.includes('seconds gone')), states);
      expect(result._meta?.[RELATED]?.taskId === created.taskId, result._meta);
    }),
  async two_questions() {
    const user = new User('blue', 'large');
    await withClient(user, async (tasks) => {
      const { created } = await ended(tasks, 'twice', 'paint it', 'The colour is blue, the size is large');
      expect(user.questions.join() === 'Which colour?,Which size?', user.questions);
      for (const params of user.asked) expect(params._meta?.[RELATED]?.taskId === created.taskId, params);
    });
  },
  async asked_later() {
    const user = new User('red');
    await withClient(user, async (tasks) => {
      await ended(tasks, 'later', 'paint it', 'The colour is red');
      expect(user.questions.join() === 'Which colour?', user.questions);
    });
  },
  async declined() {
    const user = new User();
    await withClient(user, async (tasks) => {
      const { created, last } = await run(tasks, 'twice', 'paint it');
      expect(created && user.questions.join() === 'Which colour?', user.questions);
      expect(last.type === 'result' && last.result.structuredContent?.state === 'input-required', last);
    });
  },
  // A question that this client cannot be asked must not leave its task open for ever.
  not_asked: () =>
    withClient(undefined, async (tasks) => {
      const { created, last } = await run(tasks, 'twice', 'paint it');
      expect(created && last.type === 'result' && textOf(last.result).includes('Which colour?'), last);
    }),
  chunks: () => withClient(undefined, async (tasks) => void (await ended(tasks, 'chunks', '1000', CHUNKS))),
  failed: () => withClient(undefined, (tasks) => failed(tasks, 'fail', 'on purpose')),
  rejected: () => withClient(undefined, (tasks) => failed(tasks, 'reject', 'That is not for me')),
  async signed_in() {
    if (agent === 'py01') return signedInByWords((user, words) => withClient(user, (tasks) => ended(tasks, 'login', 'x', words)));
    const user = new User();
    return withClient(user, async (tasks) => {
      await ended(tasks, 'login', 'x', 'You are signed in');
      expect(user.asked.length === 1 && user.asked[0].url === LOGIN, user.asked);
    });
  },
  cancelled: () =>
    withClient(undefined, async (tasks, client) => {
      const text = '30 seconds for ts1_core';
      const { taskId } = await begin(client, 'work', text);
      const canceled = await tasks.cancelTask(taskId);
      expect(canceled.taskId === taskId && canceled.status === 'cancelled', canceled);
      expect((await tasks.getTask(taskId)).status === 'cancelled', 'it did not stay cancelled');
      expect((await code(tasks.cancelTask(taskId))) === -32602, 'a terminal task was cancelled again');
      await agentCanceled((name, args) => client.callTool({ name, arguments: args }), agent, text);
    }),
  // `tasks/result` waits until the task is over, whoever asks and whenever.
  result_waits: () =>
    withClient(undefined, async (tasks, client) => {
      const { taskId, ttl } = await begin(client, 'work', '3');
      expect(ttl === null || ttl > 0, `ttl ${ttl}`);
      await pause(200);
      const results = [1, 2].map(() => tasks.getTaskResult(taskId, CallToolResultSchema));
      for (const result of await Promise.all(results)) {
        expect(textOf(result).includes('Worked for 3 seconds'), result);
      }
      expect((await tasks.getTask(taskId)).status === 'completed', 'not completed');
    }),
  unknown: () =>
    withClient(undefined, async (tasks) => {
      for (const ask of ['getTask', 'cancelTask']) {
        const got = await code(tasks[ask]('nobody-has-this'));
        expect(got === -32602, `${ask}: ${got}`);
      }
      const got = await code(tasks.getTaskResult('nobody-has-this', CallToolResultSchema));
      expect(got === -32602, `getTaskResult: ${got}`);
    }),
});
