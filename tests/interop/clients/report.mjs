// How a TypeScript client of the tasks suite says what it found: one line per check, exit code 1 if any failed.
// Not here: the checks.

import { setTimeout as pause } from 'node:timers/promises';

const LIMIT = 60_000; // milliseconds for one check
const SHOWN = 600; // characters of a reason

export const textOf = (result) =>
  (result.content ?? []).map((block) => (block.type === 'text' ? block.text : '')).join('');
export const stateOf = (result) => result.structuredContent?.state;

export function expect(condition, why) {
  if (!condition) throw new Error(typeof why === 'string' ? why : JSON.stringify(why));
}

async function late() {
  await pause(LIMIT, undefined, { ref: false });
  throw new Error('took too long');
}

/** Runs `{ name: async () => … }` in order and ends the process. */
export async function report(checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await Promise.race([check(), late()]);
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}: ${String(error).replaceAll('\n', ' | ').slice(0, SHOWN)}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
