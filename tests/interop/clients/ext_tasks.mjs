// The client of the tasks extension, `@modelcontextprotocol/ext-tasks`, on the second generation of the official
// TypeScript client. Not here: core tasks of 2025-11-25, `ts1_core_tasks.mjs`.

import { setTimeout as pause } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/client';
import { createApplicationInputHandler, createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import {
  contributeTaskFilterV2,
  readAcceptedTaskIdsV2,
  TaskStatusNotificationV2Schema,
} from '@modelcontextprotocol/ext-tasks/core/v2';
import { expect, report, textOf } from './report.mjs';
import { agentCanceled, CHUNKS, LOGIN, signedInByWords, User } from './tasks.mjs';
import { transport } from './ts2_transport.mjs';

const [url, agent] = process.argv.slice(2);
const EXTENSION = 'io.modelcontextprotocol/tasks';
const INFO = { name: 'interop-ext-tasks', version: '1.0.0' };

/** Requests beside the SDK's own, on its transport: the SDK does not know the results of the extension. */
class Raw {
  constructor(transport) {
    this.transport = transport;
    this.waiting = new Map();
    this.heard = () => {};
    this.count = 0;
    const sdk = transport.onmessage;
    transport.onmessage = (message, extra) => {
      const waiter = this.waiting.get(message.id);
      if (message.method) this.heard(message);
      if (!waiter || message.method) return sdk(message, extra);
      this.waiting.delete(message.id);
      return waiter(message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result });
    };
  }

  send({ method, params }, { signal, context } = {}) {
    this.count += 1;
    const id = `raw-${this.count}`;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, resolve);
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
      const options = { headers: context?.headers, requestSignal: signal };
      this.transport.send({ jsonrpc: '2.0', id, method, params }, options).catch(reject);
    });
  }
}

async function withSession(user, action) {
  const capabilities = { extensions: { [EXTENSION]: {} }, ...(user && { elicitation: { form: {}, url: {} } }) };
  const client = new Client(INFO, { capabilities, versionNegotiation: { mode: 'auto' } });
  const wire = transport(url);
  await client.connect(wire);
  const protocolVersion = client.getNegotiatedProtocolVersion();
  expect(protocolVersion === '2026-07-28', `negotiated ${protocolVersion}`);
  const raw = new Raw(wire);
  const never = () => {
    throw new Error('only elicitation was declared');
  };
  const framing = { protocolVersion, clientInfo: INFO, clientCapabilities: capabilities };
  const session = createTaskSessionFromClient(client, {
    endpointId: 'interop',
    rawDispatch: (request, options) => raw.send(request, options),
    v2RequestFraming: framing,
    onInputRequest: createApplicationInputHandler({
      elicitation: ({ params }) => user.answer(params),
      sampling: never,
      roots: never,
    }),
  });
  try {
    return await action({ session, client, raw, meta: meta(framing) });
  } finally {
    await session.close();
    await client.close();
  }
}

function meta({ protocolVersion, clientInfo, clientCapabilities }) {
  const prefix = 'io.modelcontextprotocol/';
  return {
    [`${prefix}protocolVersion`]: protocolVersion,
    [`${prefix}clientInfo`]: clientInfo,
    [`${prefix}clientCapabilities`]: clientCapabilities,
  };
}

const start = (session, skill, text) => session.callTool(`${agent}_${skill}`, { text });

/** Runs a tool to its end, which must be a result. */
async function run(session, skill, text) {
  const execution = await start(session, skill, text);
  const seen = [];
  const { outcome } = await execution.settle({ onEvent: (event) => void (event.task && seen.push(event.task)) });
  expect(outcome.status === 'completed', `${outcome.status}: ${outcome.error}`);
  return { execution, seen, result: outcome.result };
}

async function code(promise) {
  return promise.then(
    () => 'no error',
    (error) => error.code ?? error.cause?.code ?? `${error}`,
  );
}

const soon = (promise, what) =>
  Promise.race([
    promise,
    pause(8_000, undefined, { ref: false }).then(() => {
      throw new Error(`no ${what} within 8 s`);
    }),
  ]);

await report({
  declared: () =>
    withSession(undefined, async ({ session, client }) => {
      const { extensions, tasks } = client.getServerCapabilities();
      expect(extensions?.[EXTENSION] && tasks === undefined, { extensions, tasks });
      expect(session.capabilities.execution && session.capabilities.cancellation, session.capabilities);
    }),
  quick: () =>
    withSession(undefined, async ({ session }) => {
      const { execution, result } = await run(session, 'echo', 'at once');
      expect(execution.kind === 'immediate' && textOf(result).includes('at once'), execution.kind);
    }),
  minute: () =>
    withSession(undefined, async ({ session }) => {
      const execution = await start(session, 'work', '65');
      expect(execution.kind === 'task', execution.kind);
      const { outcome } = await execution.settle();
      expect(textOf(outcome.result).includes('Worked for 65 seconds'), outcome);
    }),
  long_call: () =>
    withSession(undefined, async ({ session }) => {
      const began = Date.now();
      const execution = await start(session, 'work', '6');
      expect(execution.kind === 'task' && Date.now() - began < 4_000, `${execution.kind} after ${Date.now() - began} ms`);
      const said = [];
      const { outcome } = await execution.settle({ onEvent: ({ task }) => void said.push(task?.statusMessage) });
      expect(outcome.status === 'completed', outcome);
      expect(textOf(outcome.result).includes('Worked for 6 seconds'), outcome.result);
      expect(said.some((words) => words?.includes('seconds gone')), `status: ${said}`);
    }),
  async two_questions() {
    const user = new User('blue', 'large');
    await withSession(user, async ({ session }) => {
      const { result } = await run(session, 'twice', 'paint it');
      expect(textOf(result).includes('The colour is blue, the size is large'), result);
      expect(user.questions.join() === 'Which colour?,Which size?', user.questions);
    });
  },
  // Asked when the task was handed out already: by `tasks/get`, answered by `tasks/update`.
  async asked_later() {
    const user = new User('red');
    await withSession(user, async ({ session }) => {
      const { execution, result } = await run(session, 'later', 'paint it');
      expect(execution.kind === 'task' && textOf(result).includes('The colour is red'), result);
      expect(user.questions.join() === 'Which colour?', user.questions);
    });
  },
  async declined() {
    const user = new User();
    await withSession(user, async ({ session }) => {
      const { result } = await run(session, 'later', 'paint it');
      expect(result.structuredContent?.state === 'input-required', result);
      expect(user.questions.join() === 'Which colour?', user.questions);
    });
  },
  // A question that this client cannot be asked must not leave its task open for ever.
  not_asked: () =>
    withSession(undefined, async ({ session }) => {
      const { result } = await run(session, 'later', 'paint it');
      expect(textOf(result).includes('Which colour?') && result.structuredContent?.taskId, result);
    }),
  chunks: () =>
    withSession(undefined, async ({ session }) => {
      const text = textOf((await run(session, 'chunks', '1000')).result);
      expect(text.includes(CHUNKS), `${text.length} characters: ${text.slice(0, 60)}…`);
    }),
  failed: () =>
    withSession(undefined, async ({ session }) => {
      const { result } = await run(session, 'fail', 'x');
      expect(result.isError && textOf(result).includes('on purpose'), result);
    }),
  rejected: () =>
    withSession(undefined, async ({ session }) => {
      const { result } = await run(session, 'reject', 'x');
      expect(result.isError && textOf(result).includes('That is not for me'), result);
    }),
  async signed_in() {
    if (agent === 'py01') {
      return signedInByWords((user, words) =>
        withSession(user, async ({ session }) => {
          const { result } = await run(session, 'login', 'x');
          expect(textOf(result).includes(words), result);
        }),
      );
    }
    const user = new User();
    return withSession(user, async ({ session }) => {
      const { result } = await run(session, 'login', 'x');
      expect(textOf(result).includes('You are signed in'), result);
      expect(user.asked.length === 1 && user.asked[0].url === LOGIN, user.asked);
    });
  },
  cancelled: () =>
    withSession(undefined, async ({ session, client }) => {
      const text = '30 seconds for ext_tasks';
      const execution = await start(session, 'work', text);
      expect(execution.kind === 'task', execution.kind);
      await execution.cancel();
      const { outcome } = await execution.settle();
      expect(outcome.status === 'cancelled', outcome);
      await session.cancelTask(execution.handle.taskId); // again: acknowledged all the same
      await agentCanceled((name, args) => client.callTool({ name, arguments: args }), agent, text);
    }),
  // Whoever has the reference goes on with the task, on a connection of its own.
  resumed: () =>
    withSession(undefined, async ({ session }) => {
      let reference;
      const execution = await start(session, 'work', '4');
      await execution.handoff((one) => {
        reference = one;
      });
      await withSession(undefined, async (other) => {
        const { outcome } = await (await other.session.resumeTask(reference)).settle();
        expect(outcome.status === 'completed', outcome);
        expect(textOf(outcome.result).includes('Worked for 4 seconds'), outcome.result);
      });
    }),
  told: () =>
    withSession(undefined, async ({ session, raw, meta: _meta }) => {
      const execution = await start(session, 'work', '4');
      const { taskId } = execution.handle;
      const states = [];
      let acknowledged;
      const over = new Promise((resolve) => {
        raw.heard = (message) => {
          const { method, params } = message;
          if (method === 'notifications/subscriptions/acknowledged') acknowledged = readAcceptedTaskIdsV2(params);
          if (method !== 'notifications/tasks') return;
          const { error } = TaskStatusNotificationV2Schema.safeParse(message);
          states.push(error ? `${error}` : params.status);
          if (error || params.status === 'completed') resolve(params);
        };
      });
      const giveUp = new AbortController();
      const filter = contributeTaskFilterV2({}, [taskId]);
      const request = { method: 'subscriptions/listen', params: { ...filter, _meta } };
      raw.send(request, { signal: giveUp.signal }).catch(() => {});
      const last = await soon(over, 'notification of the end');
      giveUp.abort();
      expect(acknowledged?.join() === taskId, `acknowledged: ${acknowledged}`);
      expect(states.at(-1) === 'completed' && last.taskId === taskId, states);
      expect(textOf(last.result).includes('Worked for 4 seconds'), last);
    }),
  unknown: () =>
    withSession(undefined, async ({ session }) => {
      const got = await code(session.task('nobody-has-this').snapshot());
      expect(got === -32602, `tasks/get: ${got}`);
    }),
});
