// How a TypeScript client of the tasks suite says what it found: one line per check, exit code 1 if any failed.
// Not here: the checks.

import { setTimeout as pause } from 'node:timers/promises';

/** Whether only the check `minute` is run: work of a real minute, at the gateway's own patience. */
export const MINUTE = process.env.INTEROP_MINUTE === '1';
const LIMIT = MINUTE ? 150_000 : 60_000; // milliseconds for one check
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

/** Runs `{ name: async () => … }` in order and ends the process. Those named `minute…` are run on their own. */
export async function report(checks) {
  let failed = 0;
  const wanted = Object.entries(checks).filter(([name]) => name.startsWith('minute') === MINUTE);
  for (const [name, check] of wanted) {
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
