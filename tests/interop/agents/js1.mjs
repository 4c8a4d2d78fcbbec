// A real A2A 1.0 agent on the official JavaScript SDK, `@a2a-js/sdk` 1.3.0, over JSON-RPC.
// Not a mock: the SDK makes every byte on the wire. It does what `behaviour.py` does, step for step.

import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import express from 'express';
import { AGENT_CARD_PATH, Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';

const SKILLS = {
  echo: 'Gives the text back',
  stream: 'Tells of its progress, then gives the text back in pieces',
  slow: 'Takes a few seconds, then gives the text back',
  ask: 'Asks one question, then completes with the answer',
  fail: 'Always fails, and says why',
  data: 'Gives structured data back',
  work: 'Works for as many seconds as the text says, and tells of each',
  twice: 'Asks two questions in a row, then completes with both answers',
  later: 'Works for a while, then asks one question and completes with the answer',
  chunks: 'Gives an answer in as many pieces as the text says',
  reject: 'Rejects every task, and says why',
  login: 'Needs the user at a web page, then goes on by itself',
  fate: 'Tells whether the work that was asked for with this text was canceled',
};
const QUESTIONS = { ask: ['Which colour?'], later: ['Which colour?'], twice: ['Which colour?', 'Which size?'] };
const LOGIN = 'https://login.example/start?flow=interop';
const PATIENCE = 2_000; // milliseconds that `login` waits for the user, and that `later` works before it asks

const talks = new Map(); // by task id: the skill of its first turn, and what the user has said so far
const canceled = new Set(); // first texts of tasks that were canceled

function choose(metadata, text) {
  const named = metadata?.skillId;
  if (Object.hasOwn(SKILLS, named ?? '')) return [named, text];
  const first = text.split(' ', 1)[0];
  return Object.hasOwn(SKILLS, first) ? [first, text.slice(first.length + 1)] : ['echo', text];
}

/** What the user said in this turn of a task: the skill of the task and all that was said. */
function hear(task, metadata, text) {
  if (talks.has(task)) {
    talks.get(task)[1].push(text);
  } else {
    const [skill, rest] = choose(metadata, text);
    talks.set(task, [skill, [rest]]);
  }
  return talks.get(task);
}

const number = (text, fallback) => (/^\d+( |$)/.test(text) ? Number.parseInt(text, 10) : fallback);

const part = (content) => ({ content, metadata: undefined, filename: '', mediaType: '' });
const textPart = (value) => part({ $case: 'text', value });
const pagePart = (value) => ({ ...part({ $case: 'url', value }), filename: 'Sign in', mediaType: 'text/html' });

class Turn {
  constructor(context, bus) {
    this.ids = { taskId: context.taskId, contextId: context.contextId };
    this.bus = bus;
    this.over = false;
  }

  cancel() {
    this.status(TaskState.TASK_STATE_CANCELED);
    this.over = true;
  }

  status(state, text, ...more) {
    if (this.over) return;
    const message = text && {
      role: Role.ROLE_AGENT,
      messageId: crypto.randomUUID(),
      parts: [textPart(text), ...more],
      ...this.ids,
      extensions: [],
      referenceTaskIds: [],
      metadata: undefined,
    };
    const status = { state, message: message || undefined, timestamp: new Date().toISOString() };
    this.bus.publish(AgentEvent.statusUpdate({ ...this.ids, status, metadata: undefined }));
  }

  artifact(artifactId, parts, append, lastChunk) {
    if (this.over) return;
    const artifact = { artifactId, name: artifactId, description: '', parts, extensions: [], metadata: undefined };
    this.bus.publish(AgentEvent.artifactUpdate({ ...this.ids, artifact, append, lastChunk, metadata: undefined }));
  }

  answer(value) {
    this.artifact('answer', [textPart(value)], false, true);
  }

  async run(skill, said) {
    const text = said.at(-1);
    const question = QUESTIONS[skill]?.[said.length - 1];
    if (question && skill === 'later') {
      this.status(TaskState.TASK_STATE_WORKING, 'thinking');
      await pause(PATIENCE);
    }
    if (question) return this.status(TaskState.TASK_STATE_INPUT_REQUIRED, question);
    if (skill === 'fail') {
      this.status(TaskState.TASK_STATE_WORKING, 'trying');
      return this.status(TaskState.TASK_STATE_FAILED, 'It went wrong on purpose');
    }
    if (skill === 'reject') return this.status(TaskState.TASK_STATE_REJECTED, 'That is not for me');
    if (['data', 'stream', 'slow', 'work', 'chunks', 'login'].includes(skill)) {
      await this[skill](text);
    } else if (skill === 'fate') {
      this.answer(canceled.has(text) ? 'canceled' : 'not canceled');
    } else if (skill === 'ask' || skill === 'later') {
      this.answer(`The colour is ${text}`);
    } else if (skill === 'twice') {
      this.answer(`The colour is ${said[1]}, the size is ${said[2]}`);
    } else {
      this.answer(text);
    }
    return this.status(TaskState.TASK_STATE_COMPLETED);
  }

  async data(text) {
    const value = { text, list: [1, 2, 3], nested: { ok: true } };
    this.artifact('data', [part({ $case: 'data', value })], false, false);
  }

  async slow(text) {
    for (let second = 0; second < 3; second += 1) {
      this.status(TaskState.TASK_STATE_WORKING, `${second} seconds gone`);
      await pause(1000);
    }
    this.answer(text);
  }

  async work(text) {
    const seconds = number(text, 3);
    for (let second = 0; second < seconds && !this.over; second += 1) {
      this.status(TaskState.TASK_STATE_WORKING, `${second} of ${seconds} seconds gone`);
      await pause(1000);
    }
    this.answer(`Worked for ${seconds} seconds`);
  }

  async chunks(text) {
    const count = number(text, 1000);
    for (let index = 0; index < count; index += 1) {
      this.artifact('answer', [textPart(`${index};`)], index > 0, index === count - 1);
    }
  }

  async login() {
    this.status(TaskState.TASK_STATE_AUTH_REQUIRED, 'Sign in to go on', pagePart(LOGIN));
    await pause(PATIENCE);
    this.answer('You are signed in');
  }

  async stream(text) {
    for (const percent of [25, 50, 75]) {
      this.status(TaskState.TASK_STATE_WORKING, `${percent} percent done`);
      await pause(50);
    }
    const third = Math.max(1, Math.floor(text.length / 3));
    const pieces = [text.slice(0, third), text.slice(third, 2 * third), text.slice(2 * third)];
    for (const [index, piece] of pieces.entries()) {
      this.artifact('answer', [textPart(piece || ' ')], index > 0, index === 2);
      await pause(20);
    }
  }
}

const turns = new Map(); // by task id, while they run

const executor = {
  async execute(context, bus) {
    const { userMessage, task, taskId, contextId } = context;
    const status = { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString(), message: undefined };
    bus.publish(
      AgentEvent.task(task ?? { id: taskId, contextId, status, artifacts: [], history: [userMessage], metadata: undefined }),
    );
    const words = userMessage.parts.map((one) => (one.content?.$case === 'text' ? one.content.value : ''));
    const [skill, said] = hear(taskId, userMessage.metadata, words.join('\n'));
    const turn = new Turn(context, bus);
    turns.set(taskId, turn);
    try {
      await turn.run(skill, said);
    } finally {
      turns.delete(taskId);
    }
  },
  async cancelTask(taskId, bus) {
    if (talks.has(taskId)) canceled.add(talks.get(taskId)[1][0]);
    const turn = turns.get(taskId) ?? new Turn({ taskId, contextId: '' }, bus);
    turn.cancel();
  },
};

function card(url) {
  return {
    name: 'JavaScript 1.0 agent',
    description: 'The interop agent on @a2a-js/sdk 1.3',
    supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' }],
    provider: undefined,
    version: '1.0.0',
    capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain', 'application/json'],
    skills: Object.entries(SKILLS).map(([id, description]) => ({
      id,
      name: id,
      description,
      tags: ['interop'],
      examples: [],
      inputModes: [],
      outputModes: [],
      securityRequirements: [],
    })),
    documentationUrl: '',
    signatures: [],
  };
}

const { values } = parseArgs({ options: { port: { type: 'string', default: '0' } } });
const server = createServer();
server.listen(Number(values.port), '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}/`;
  const requestHandler = new DefaultRequestHandler(card(url), new InMemoryTaskStore(), executor);
  const app = express();
  app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }));
  app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  server.on('request', app);
  console.log(`ready ${url}`);
});
