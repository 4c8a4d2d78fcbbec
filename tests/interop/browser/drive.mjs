// Runs one page in headless Chromium: `drive.mjs SDK MODE URL AGENT`.
//
// Bundles `page_SDK.mjs` for the browser and serves it from an origin of its own, which is not the gateway's, so that the
// browser asks for CORS at every step. The page prints one line for each check; they are printed here. Exit code 1 if one failed.

import { createServer } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import puppeteer from 'puppeteer-core';

const LIMIT = 90_000; // milliseconds for one page
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const [sdk, mode, url, agent] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

const bundled = await build({
  entryPoints: [join(here, `page_${sdk}.mjs`)],
  bundle: true,
  write: false,
  format: 'esm',
  platform: 'browser',
  logLevel: 'error',
});
const script = bundled.outputFiles[0].text;

const server = createServer((request, response) => {
  const isScript = request.url === '/page.js';
  response.setHeader('Content-Type', isScript ? 'text/javascript' : 'text/html; charset=utf-8');
  response.end(isScript ? script : '<!doctype html><title>checks</title><script type="module" src="/page.js"></script>');
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
// By name: another host and another port than the gateway's.
const origin = `http://localhost:${server.address().port}`;
const profile = await mkdtemp(join(tmpdir(), 'interop-browser-'));
let failed = 0;
let passed = 0;
const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  userDataDir: profile,
  // A container has no name spaces to spare, and little shared memory.
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
});
try {
  const page = await browser.newPage();
  let done;
  const ended = new Promise((resolve) => (done = resolve));
  page.on('console', (message) => {
    const text = message.text();
    if (text.startsWith('ok ')) passed += 1;
    if (text.startsWith('FAILED ')) failed += 1;
    if (/^(ok|FAILED|left out) /.test(text)) console.log(text);
    // The reason that the browser gives for a refusal.
    else if (message.type() === 'error') console.error(text);
    if (text === 'done') done();
  });
  page.on('pageerror', (error) => {
    failed += 1;
    console.log(`FAILED page: ${error.message}`);
    done();
  });
  await page.goto(`${origin}/?${new URLSearchParams({ mode, url, agent })}`);
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done after ${LIMIT} ms`)), LIMIT).unref();
  });
  await Promise.race([ended, late]);
} catch (error) {
  failed += 1;
  console.log(`FAILED driver: ${error.message}`);
} finally {
  await browser.close();
  server.close();
  await rm(profile, { recursive: true, force: true });
}
process.exit(failed || !passed ? 1 : 0);
