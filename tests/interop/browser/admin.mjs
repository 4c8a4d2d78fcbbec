// The page of operators in headless Chromium: `admin.mjs [FOLDER]`.
//
// Starts the demo agent and a gateway before it, with a token of operators, API keys of callers and an agent that is
// down. Signs in, looks at every view, calls tools, answers a question, and signs out; then opens the page of a second
// gateway, of which operators have certificates and no token. A violation of the content security policy, an error on the
// console and a finding of axe-core fail it. Screenshots go to FOLDER, light, dark and narrow. The binary is GATEWAY, and
// the files of the page are those in it. Exit code 1 if a check failed.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer as createTlsServer } from 'node:tls';
import puppeteer from 'puppeteer-core';

const LIMIT = 30_000; // milliseconds for one step
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const GATEWAY = process.env.GATEWAY ?? 'target/debug/mcp-a2a-gateway';
const TOKEN = 'operator-token-of-the-test';
const KEY = 'key-of-a-caller-of-the-test';
const PAGE = process.env.PAGE; // a folder with files to use in place of those in the binary
const shots = process.argv[2];

const results = { passed: 0, failed: 0 };
const check = (isTrue, what) => {
  console.log(`${isTrue ? 'ok' : 'FAILED'} ${what}`);
  results[isTrue ? 'passed' : 'failed'] += 1;
};

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

const [agentPort, port, securePort, adminPort, downPort, otherPort, certifiedPort] = await Promise.all(Array.from({ length: 7 }, freePort));
const folder = await mkdtemp(join(tmpdir(), 'admin-page-'));
const hash = (text) => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const [certificate, key] = ['tls.crt', 'tls.key'].map((name) => join(folder, name));
execFileSync('openssl', [
  'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '10', '-keyout', key, '-out', certificate,
  '-subj', '/CN=gateway.example', '-addext', 'subjectAltName=DNS:gateway.example',
], { stdio: 'ignore' });
await writeFile(join(folder, 'gateway.yaml'), `
listeners:
  - { address: "127.0.0.1:${port}" }
  - { address: "127.0.0.1:${securePort}", tls: { certificate: "${certificate}", key: "${key}" } }
admin: { address: "127.0.0.1:${adminPort}", token: ${TOKEN} }
auth: { api_keys: { keys: { ann: "${hash(KEY)}" } } }
log: { level: warn }
seal_key: "0123456789012345678901234567890123456789"
agents:
  demo: { card: "http://127.0.0.1:${agentPort}/" }
  billing: { card: "http://127.0.0.1:${downPort}/" }
  reports: { card: "http://127.0.0.1:${agentPort}/none.json" }
`);
const openssl = (...words) => execFileSync('openssl', words, { stdio: 'ignore' });
const [authority, authorityKey, operator, operatorKey] = ['ca.crt', 'ca.key', 'operator.crt', 'operator.key'].map((name) => join(folder, name));
const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '10'];
openssl('req', '-x509', ...fresh, '-keyout', authorityKey, '-out', authority, '-subj', '/CN=operators');
openssl('req', '-x509', ...fresh, '-keyout', operatorKey, '-out', operator, '-subj', '/CN=olga', '-CA', authority, '-CAkey', authorityKey,
  '-addext', 'basicConstraints=critical,CA:FALSE', '-addext', 'extendedKeyUsage=clientAuth');
await writeFile(join(folder, 'certified.yaml'), `
listeners:
  - { address: "127.0.0.1:${otherPort}" }
admin:
  address: "127.0.0.1:${certifiedPort}"
  tls: { certificate: "${certificate}", key: "${key}", client_auth: { mode: optional, ca: "${authority}" } }
log: { level: warn }
agents:
  demo: { card: "http://127.0.0.1:${agentPort}/" }
`);
const processes = [
  spawn(GATEWAY, ['demo', '--agent-only', '--agent-port', String(agentPort)], { stdio: 'ignore' }),
  ...['gateway.yaml', 'certified.yaml'].map((file) =>
    spawn(GATEWAY, ['serve', '--config', join(folder, file)], { stdio: ['ignore', 'ignore', 'inherit'] }),
  ),
];

// A proxy on this machine that ends the browser's TLS and presents a certificate, or none, to the second gateway: headless
// Chromium has no dialog in which one could be chosen. Gives the origin.
const proxies = [];
const tlsProxy = async (identity) => {
  const ca = await readFile(certificate);
  const server = createTlsServer({ cert: ca, key: await readFile(key) }, (socket) => {
    const upstream = connect({ host: '127.0.0.1', port: certifiedPort, ca, servername: 'gateway.example', ...identity });
    for (const one of [socket, upstream]) one.on('error', () => [socket, upstream].forEach((each) => each.destroy()));
    socket.pipe(upstream).pipe(socket);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  proxies.push(server);
  return `https://127.0.0.1:${server.address().port}`;
};

const origin = `http://127.0.0.1:${adminPort}`;
const until = async (what, found) => {
  const end = Date.now() + LIMIT;
  for (;;) {
    const value = await found().catch(() => undefined);
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${LIMIT} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  // The proxies of the last part have a certificate that nothing signed.
  acceptInsecureCerts: true,
  userDataDir: join(folder, 'profile'),
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
  ],
});
try {
  await until('the gateway', async () => (await fetch(`${origin}/readyz`)).ok);
  const page = await browser.newPage();
  page.setDefaultTimeout(LIMIT);
  await page.setViewport({ width: 1280, height: 860 });
  const problems = [];
  // The refusal of a wrong token, and nothing else, is an error on the console.
  let expects = /^$/;
  const problem = (text) => {
    if (!expects.test(text)) problems.push(text);
  };
  page.on('console', (message) => ['error', 'warn'].includes(message.type()) && problem(message.text()));
  page.on('pageerror', (error) => problem(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith('data:')) problem(`asked ${request.url()}`);
  });
  await page.evaluateOnNewDocument(() => {
    addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  if (PAGE) {
    await page.setRequestInterception(true);
    page.on('request', async (request) => {
      const path = new URL(request.url()).pathname;
      const name = path === '/' ? 'index.html' : path.startsWith('/page/') ? path.slice(6) : undefined;
      if (!name) return request.continue();
      const type = { html: 'text/html', css: 'text/css', js: 'text/javascript' }[name.split('.').pop()];
      const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; require-trusted-types-for 'script'";
      request.respond({ headers: { 'content-type': `${type}; charset=utf-8`, 'content-security-policy': policy }, body: await readFile(join(PAGE, name)) });
    });
  }
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  const seen = (text) => page.waitForFunction((wanted) => document.body.innerText.includes(wanted), {}, text);
  const heading = (text) => page.waitForFunction((wanted) => document.querySelector('h1')?.innerText.startsWith(wanted), {}, text);
  const go = async (view, title) => {
    await page.evaluate((hash) => (location.hash = hash), `#/${view}`);
    await heading(title);
  };
  const shot = async (name) => {
    if (!shots) return;
    await mkdir(shots, { recursive: true });
    for (const [kind, width, scheme] of [['light', 1280, 'light'], ['dark', 1280, 'dark'], ['narrow', 375, 'light']]) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      await page.setViewport({ width, height: 860 });
      await page.screenshot({ path: join(shots, `${name}-${kind}.png`), fullPage: true });
    }
    await page.setViewport({ width: 1280, height: 860 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  };
  // In the isolated world of the driver, which the policy of the page does not bind.
  const accessible = async (name) => {
    const session = await page.createCDPSession();
    const { frameTree } = await session.send('Page.getFrameTree');
    const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
    const evaluate = (expression) => session.send('Runtime.evaluate', { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
    for (const scheme of ['light', 'dark']) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      await evaluate(axe);
      const { result } = await evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }).then((found) => found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`))");
      check(result.value?.length === 0, `${name} is accessible, ${scheme}: ${JSON.stringify(result.value ?? result)}`);
    }
    await page.setViewport({ width: 375, height: 700 });
    const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    check(!isWide, `${name} fits 375 pixels`);
    await page.setViewport({ width: 1280, height: 860 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
    await session.detach();
  };

  await page.goto(origin);
  await heading('Sign in');
  await accessible('sign-in');
  await shot('sign-in');
  const focus = await page.evaluate(() => document.activeElement.id);
  check(focus === 'token', 'the token has the focus');
  expects = /401/;
  await page.keyboard.type('not-the-token-of-operators');
  await page.keyboard.press('Enter');
  await seen('not that of an operator');
  check(true, 'a wrong token is refused');
  await until('the report of the refusal', async () => true);
  await page.keyboard.type(TOKEN);
  await page.keyboard.press('Enter');
  await heading('Overview');
  expects = /^$/;
  check(!(await page.evaluate(() => document.cookie)), 'scripts do not see the cookie');

  await seen('billing');
  await go('agents', 'Agents');
  await seen('ready');
  await seen('Connection refused');
  check(true, 'agents are shown, and why they are down');
  await accessible('agents');
  await shot('agents');
  await go('agents/demo', 'demo');
  await seen('demo_countdown');
  check(true, 'skills are shown with their tools');
  await accessible('agent');
  await shot('agent');

  await go('call', 'Call a tool');
  await until('the refusal of an anonymous caller', () => page.evaluate(() => document.querySelector('form .badge.bad')));
  check(true, 'a caller without a credential is refused, although an operator asks');
  await page.select('#field-credential-of-the-caller', 'key');
  await page.type('#field-token-or-key', KEY);
  await page.keyboard.press('Enter');
  await seen('9 tools are visible');
  const call = async (tool, text) => {
    await page.select('#tool', tool);
    await page.waitForSelector('textarea');
    await page.type('textarea', text);
    await page.click('form[aria-label=Arguments] button.primary');
  };
  await call('demo_countdown', '3');
  await seen('2 s left');
  check(true, 'progress is shown while the call runs');
  await go('activity', 'Activity');
  check(true, 'a call ends when its view is left');
  await go('call', 'Call a tool');
  await seen('9 tools are visible');
  await call('demo_countdown', '4');
  await seen('3 s left');
  await shot('call');
  await seen('liftoff');
  await seen('done after');
  check(true, 'the result follows the progress');
  await call('demo_ask', 'colours');
  await seen('What should I know');
  await accessible('question');
  await shot('question');
  await page.type('.question textarea, .question input', 'green');
  await page.click('.question button.primary');
  await seen('You said: green');
  check(true, 'a question is answered');
  await accessible('call');
  await shot('result');

  // A call of another client is seen while it runs.
  const calling = fetch(`http://127.0.0.1:${port}/mcp`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'X-Api-Key': KEY },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'demo_countdown', arguments: { text: '6' } } }),
  });
  await go('activity', 'Activity');
  await seen('key:ann');
  check(true, 'live calls are shown with their callers');
  await accessible('activity');
  await shot('activity');
  await (await calling).text();
  await go('audit', 'Audit');
  await seen('tools/call');
  check(true, 'decisions of the rules are shown');
  await accessible('audit');
  await shot('audit');
  await go('configuration', 'Configuration');
  await page.$$eval('summary', (all) => all.forEach((summary) => summary.click()));
  await seen('body: 4194304');
  const shown = await page.evaluate(() => document.body.textContent);
  check(![TOKEN, KEY].some((secret) => shown.includes(secret)) && shown.includes('billing'), 'the configuration is shown without secrets');
  await accessible('configuration');
  await shot('configuration');
  await go('', 'Overview');
  await page.waitForSelector('svg path.line');
  check(true, 'requests and durations are plotted');
  await seen('in 9 days');
  check(true, 'the expiry of a certificate is shown');
  await accessible('overview');
  await shot('overview');

  // By the keyboard alone.
  await page.focus('#leave');
  await page.keyboard.press('Enter');
  await heading('Sign in');
  const status = await page.evaluate(async () => (await fetch('/api/overview')).status);
  check(status === 401, 'nothing is shown after the end of the session');
  const foreseen = problems.filter((text) => !/status of 401/.test(text));
  check(foreseen.length === 0, `no error on the console: ${foreseen.join('; ')}`);

  // Operators with certificates alone.
  const identity = { cert: await readFile(operator), key: await readFile(operatorKey) };
  const [certified, stranger] = [await tlsProxy(identity), await tlsProxy({})];
  const second = await browser.newPage();
  second.setDefaultTimeout(LIMIT);
  const told = [];
  second.on('console', (message) => ['error', 'warn'].includes(message.type()) && told.push(message.text()));
  second.on('pageerror', (error) => told.push(error.message));
  const text = (wanted) => second.waitForFunction((words) => document.body.innerText.includes(words), {}, wanted);
  await until('the second gateway', () => second.goto(certified));
  await second.waitForFunction(() => document.querySelector('h1')?.innerText.startsWith('Overview'));
  await second.evaluate(() => (location.hash = '#/agents/demo'));
  await text('demo_countdown');
  check(true, 'an operator with a certificate sees agents without a token');
  await second.evaluate(() => (location.hash = '#/call'));
  await text('9 tools are visible');
  await second.select('#tool', 'demo_countdown');
  await second.waitForSelector('textarea');
  await second.type('textarea', '2');
  await second.click('form[aria-label=Arguments] button.primary');
  await text('liftoff');
  check(true, 'an operator with a certificate calls a tool');
  check(told.length === 0, `no error on the console of that operator: ${told.join('; ')}`);
  await second.goto(stranger);
  await text('Present a client certificate of an operator');
  const refused = await second.evaluate(async () => (await fetch('/api/overview')).status);
  check(refused === 401, 'a browser without a certificate is told to present one, and shown nothing');
} catch (error) {
  check(false, `driver: ${error.message}`);
  if (shots) {
    const [page] = (await browser.pages()).slice(-1);
    await mkdir(shots, { recursive: true });
    await page.screenshot({ path: join(shots, 'failed.png') });
  }
} finally {
  await browser.close();
  proxies.forEach((one) => one.close());
  processes.forEach((one) => one.kill());
  await rm(folder, { recursive: true, force: true, maxRetries: 3 });
}
process.exit(results.failed || !results.passed ? 1 : 0);
