// What the JavaScript agents of the interop tests do, free of any SDK: `behaviour.py`, step for step.
// Not an agent: `js03.mjs` and `js1.mjs` turn it into the events of their own A2A SDK, through a `Turn`.

import { setTimeout as pause } from 'node:timers/promises';

export const SKILLS = {
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
  ids: 'Tells by which ids the agent knows this task and its context',
};
export const EXTENDED = { ...SKILLS, more: 'Is shown only to who asks for the extended card' };
const QUESTIONS = { ask: ['Which colour?'], later: ['Which colour?'], twice: ['Which colour?', 'Which size?'] };
const LOGIN = 'https://login.example/start?flow=interop';
const PATIENCE = 2_000; // milliseconds that `login` waits for the user, and that `later` works before it asks

const talks = new Map(); // by task id: the skill of its first turn, and what the user has said so far
const canceled = new Set(); // first texts of tasks that were canceled
const turns = new Map(); // by task id, while they run

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

/** Plays one turn of a task to its end. */
export async function play(turn, metadata, text) {
  const task = turn.ids.taskId;
  const [skill, said] = hear(task, metadata, text);
  turns.set(task, turn);
  try {
    await turn.run(skill, said);
  } finally {
    turns.delete(task);
  }
}

/** Cancels a task: the turn that runs, or else the one that `idle()` makes. */
export function cancel(task, idle) {
  if (talks.has(task)) canceled.add(talks.get(task)[1][0]);
  (turns.get(task) ?? idle()).cancel();
}

const number = (text, fallback) => (/^\d+( |$)/.test(text) ? Number.parseInt(text, 10) : fallback);

/**
 * One turn of a task. Who inherits says `tell(state, parts?)` and `give(artifactId, part, append, lastChunk)`, where a
 * state has its name of A2A 0.3 and a part is `{text}`, `{data}` or `{url, name, type}`.
 */
export class Turn {
  constructor({ taskId, contextId }) {
    this.ids = { taskId, contextId };
    this.over = false;
  }

  cancel() {
    this.status('canceled');
    this.over = true;
  }

  status(state, text, ...more) {
    if (!this.over) this.tell(state, text && [{ text }, ...more]);
  }

  artifact(artifactId, part, append, lastChunk) {
    if (!this.over) this.give(artifactId, part, append, lastChunk);
  }

  answer(text) {
    this.artifact('answer', { text }, false, true);
  }

  async run(skill, said) {
    const text = said.at(-1);
    const question = QUESTIONS[skill]?.[said.length - 1];
    if (question && skill === 'later') {
      this.status('working', 'thinking');
      await pause(PATIENCE);
    }
    if (question) return this.status('input-required', question);
    if (skill === 'fail') {
      this.status('working', 'trying');
      return this.status('failed', 'It went wrong on purpose');
    }
    if (skill === 'reject') return this.status('rejected', 'That is not for me');
    if (['data', 'stream', 'slow', 'work', 'chunks', 'login'].includes(skill)) {
      await this[skill](text);
    } else if (skill === 'fate') {
      this.answer(canceled.has(text) ? 'canceled' : 'not canceled');
    } else if (skill === 'ids') {
      this.answer(`${this.ids.taskId} ${this.ids.contextId}`);
    } else if (skill === 'ask' || skill === 'later') {
      this.answer(`The colour is ${text}`);
    } else if (skill === 'twice') {
      this.answer(`The colour is ${said[1]}, the size is ${said[2]}`);
    } else {
      this.answer(text);
    }
    return this.status('completed');
  }

  async data(text) {
    this.artifact('data', { data: { text, list: [1, 2, 3], nested: { ok: true } } }, false, false);
  }

  async slow(text) {
    for (let second = 0; second < 3; second += 1) {
      this.status('working', `${second} seconds gone`);
      await pause(1000);
    }
    this.answer(text);
  }

  async work(text) {
    const seconds = number(text, 3);
    for (let second = 0; second < seconds && !this.over; second += 1) {
      this.status('working', `${second} of ${seconds} seconds gone`);
      await pause(1000);
    }
    this.answer(`Worked for ${seconds} seconds`);
  }

  async chunks(text) {
    const count = number(text, 1000);
    for (let index = 0; index < count; index += 1) {
      this.artifact('answer', { text: `${index};` }, index > 0, index === count - 1);
    }
  }

  async login() {
    this.status('auth-required', 'Sign in to go on', { url: LOGIN, name: 'Sign in', type: 'text/html' });
    await pause(PATIENCE);
    this.answer('You are signed in');
  }

  async stream(text) {
    for (const percent of [25, 50, 75]) {
      this.status('working', `${percent} percent done`);
      await pause(50);
    }
    const third = Math.max(1, Math.floor(text.length / 3));
    const pieces = [text.slice(0, third), text.slice(third, 2 * third), text.slice(2 * third)];
    for (const [index, piece] of pieces.entries()) {
      this.artifact('answer', { text: piece || ' ' }, index > 0, index === 2);
      await pause(20);
    }
  }
}
