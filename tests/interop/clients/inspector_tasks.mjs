// The MCP Inspector's command line in the tasks suite, in both of its eras: a process for each call.
// It cannot be asked by an agent, so questions come back as handles.

import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, MINUTE, report, stateOf, textOf } from './report.mjs';
import { agentCanceled, CHUNKS, isUnderWay, settled } from './tasks.mjs';

const [url, agent] = process.argv.slice(2);
const INSPECTOR = fileURLToPath(
  new URL('./node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url),
);
const LIMIT = MINUTE ? 100_000 : 40_000; // milliseconds for one call

/** Runs the Inspector and returns what it prints as JSON; a call that ends as an error is told by its exit code alone. */
function inspect(era, ...words) {
  const argv = [INSPECTOR, '--cli', url, '--transport', 'http', '--protocol-era', era, '--format', 'json', '-q', ...words];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, argv, { timeout: LIMIT, maxBuffer: 1 << 24 }, (error, stdout, stderr) => {
      try {
        const said = JSON.parse(stdout);
        resolve(said.result ?? said);
      } catch {
        reject(new Error(`${words.slice(1).join(' ')}: ${stdout} ${stderr} ${error?.message ?? ''}`));
      }
    });
  });
}

function checks(era) {
  const tool = (name, args) =>
    inspect(era, '--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args));
  const call = (skill, text) => tool(`${agent}_${skill}`, { text });
  const read = async (uri) => {
    const { contents } = await inspect(era, '--method', 'resources/read', '--uri', uri);
    return JSON.parse(contents[0].text);
  };
  const begin = async (text) => {
    const begun = await tool('subagent_start', { subagentUri: `a2a-agent://${agent}`, text });
    expect(!begun.isError && begun.structuredContent?.taskId, begun);
    return begun.structuredContent;
  };
  const finished = (result) => (isUnderWay(result) ? settled(tool, result.structuredContent.taskId) : result);
  return {
    async tools() {
      const { tools } = await inspect(era, '--method', 'tools/list');
      const listed = tools.map(({ name }) => name);
      for (const name of [`${agent}_work`, 'subagent_start', 'subagent_wait', 'subagent_send', 'subagent_cancel']) {
        expect(listed.includes(name), `${name} is not in ${listed}`);
      }
    },
    async long_call() {
      const result = await call('work', '2');
      expect(!result.isError && textOf(result).includes('Worked for 2 seconds'), result);
    },
    async minute() {
      const result = await finished(await call('work', '65'));
      expect(!result.isError && textOf(result).includes('Worked for 65 seconds'), result);
    },
    // As a task, where the Inspector makes it one, or as a handle that is waited for.
    async outlasts() {
      const result = await finished(await call('work', '18'));
      expect(!result.isError && textOf(result).includes('Worked for 18 seconds'), result);
    },
    async not_asked() {
      const result = await call('twice', 'paint it');
      expect(stateOf(result) === 'input-required' && textOf(result).includes('Which colour?'), result);
    },
    async chunks() {
      const result = await finished(await call('chunks', '1000'));
      expect(textOf(result).includes(CHUNKS), 'chunks are missing');
    },
    async failed() {
      const result = await call('fail', 'x');
      expect(result.isError && textOf(result).includes('on purpose'), result);
    },
    async rejected() {
      const result = await call('reject', 'x');
      expect(result.isError && textOf(result).includes('That is not for me'), result);
    },
    async subagent() {
      const { taskId, taskUri } = await begin('twice');
      for (const text of ['blue', 'large']) {
        const asked = await settled(tool, taskId);
        expect(stateOf(asked) === 'input-required', asked);
        const sent = await tool('subagent_send', { taskId, text });
        expect(sent.structuredContent?.ok === true, sent);
      }
      const done = await settled(tool, taskId);
      expect(stateOf(done) === 'completed' && textOf(done).includes('blue, the size is large'), done);
      const seen = await read(taskUri);
      expect(seen.taskId === taskId && seen.state === 'completed', seen);
      expect(JSON.stringify(seen.artifacts).includes('blue, the size is large'), seen);
    },
    async subagent_cancelled() {
      const text = `60 seconds for the inspector, ${era}`;
      const { taskId } = await begin(`work ${text}`);
      const canceled = await tool('subagent_cancel', { taskId });
      expect(canceled.structuredContent?.canceled === true, canceled);
      expect(stateOf(await settled(tool, taskId)) === 'canceled', 'the task is not canceled');
      await pause(100);
      await agentCanceled(tool, agent, text);
    },
  };
}

const named = (era) => Object.entries(checks(era)).map(([name, check]) => [`${name}_${era}`, check]);
await report(Object.fromEntries([...named('legacy'), ...named('auto')]));
