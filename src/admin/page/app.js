// The views of the page, their refresh, and the session of its person.

import { callView, leaveCall } from './caller.js';
import { ApiError, get, getText, session, signIn, signOut } from './client.js';
import { ago, badge, clock, code, duration, field, figure, figures, fill, h, number, panel, table } from './elements.js';
import { plot } from './plots.js';

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const state = document.getElementById('state');
const leave = document.getElementById('leave');

/** Each view: its title, the interval of its refresh in milliseconds, and its content. */
const VIEWS = {
  '': { title: 'Overview', every: 5000, load: overview },
  agents: { title: 'Agents', every: 5000, load: agents },
  activity: { title: 'Activity', every: 2000, load: activity },
  call: { title: 'Call', load: call },
  audit: { title: 'Audit', every: 5000, load: audit },
  configuration: { title: 'Configuration', load: configuration },
};

let turn = 0;

async function overview() {
  const [now, history, metrics, first] = await Promise.all([
    get('/api/overview'), get('/api/history'), getText('/metrics'), get('/api/agents'),
  ]);
  const down = first.agents.filter((agent) => !agent.ready);
  return [
    h('h1', {}, 'Overview'),
    readiness(now),
    figures(
      figure('Agents ready', `${now.agents_ready} / ${now.agents}`),
      figure('Tools', number(now.tools)),
      figure('Live calls', number(now.live_calls)),
      figure('Streams', number(now.streams)),
      figure('Tasks', number(now.tasks)),
      figure('In background', number(now.background)),
      figure('Uptime', duration(now.uptime_seconds)),
      figure('Version', now.version),
    ),
    plots(history),
    down.length ? panel('Agents that are down', agentTable('Agents that are down', down)) : null,
    panel('Certificates', certificates(metrics)),
  ];
}

function readiness({ ready }) {
  const degraded = ready.degraded ?? [];
  if (!ready.ready) {
    const waiting = (ready.waiting ?? []).map((one) => h('li', {}, h('strong', {}, one.agent), ' ', code(one.url), ': ', one.why));
    return h('div', { class: 'notice bad', role: 'alert' }, badge('bad', `not ready: ${ready.reason}`), h('ul', {}, waiting));
  }
  if (!degraded.length) return null;
  return h('div', { class: 'notice warn' }, badge('warn', 'degraded'), ' ', degraded.map((key, at) => [at ? ', ' : '', code(key)]));
}

function plots({ intervals }) {
  if (!intervals.length) return panel('Last 15 minutes', h('p', { class: 'empty' }, 'The first samples are taken now.'));
  const times = intervals.map((one) => one.at);
  const rate = (pick) => intervals.map((one) => pick(one) / Math.max(0.001, one.seconds));
  const perSecond = (value) => `${value < 10 ? Number(value.toFixed(2)) : Math.round(value)}/s`;
  const errors = (one) => one.client_fault + one.agent_fault + one.gateway_fault;
  const sum = (pick) => intervals.reduce((all, one) => all + pick(one), 0);
  const quantiles = (part) => ['p50', 'p95', 'p99'].map((name, at) => ({ name, kind: ['one', 'two', 'three'][at], values: intervals.map((one) => one[part][name]) }));
  const last = (part) => intervals.findLast((one) => one[part].p95 !== null)?.[part].p95;
  return panel('Last 15 minutes', h('div', { class: 'plots' },
    plot({
      title: 'Requests', times, format: perSecond,
      series: [
        { name: 'all', kind: 'one', values: rate((one) => one.ok + errors(one) + one.other) },
        { name: 'refused', kind: 'two', values: rate((one) => one.refused) },
      ],
      summary: `${sum((one) => one.ok + errors(one) + one.other)} requests, ${sum((one) => one.refused)} refused.`,
    }),
    plot({
      title: 'Errors', times, format: perSecond,
      series: [
        { name: 'agent', kind: 'three', values: rate((one) => one.agent_fault) },
        { name: 'client', kind: 'two', values: rate((one) => one.client_fault) },
        { name: 'gateway', kind: 'one', values: rate((one) => one.gateway_fault) },
      ],
      summary: `${sum(errors)} requests failed.`,
    }),
    plot({ title: 'Time at agents', times, format: duration, series: quantiles('agent'), summary: `The last 95th percentile is ${duration(last('agent'))}.` }),
    plot({ title: 'Time in the gateway', times, format: duration, series: quantiles('gateway'), summary: `The last 95th percentile is ${duration(last('gateway'))}.` })));
}

/** Reads the expiries in the metrics. */
function certificates(metrics) {
  const found = [];
  for (const line of metrics.split('\n')) {
    const match = /^mcp_a2a_gateway_\w*expiry_timestamp_seconds\{(.*)\} (\S+)$/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...match[1].matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, value]));
    found.push({ ...labels, at: Number(match[2]) * 1000 });
  }
  found.sort((one, other) => one.at - other.at);
  const rows = found.map((one) => {
    const days = (one.at - Date.now()) / 86_400_000;
    const kind = days < 0 ? 'bad' : days < 21 ? 'warn' : 'good';
    const text = days < 0 ? 'expired' : days < 1 ? `in ${duration(days * 86_400)}` : `in ${Math.floor(days)} days`;
    return [one.name ?? '–', one.kind ?? '–', one.listener ?? one.agent ?? '–', badge(kind, text), new Date(one.at).toLocaleDateString()];
  });
  return table('Certificates by their expiry', ['Name', 'Kind', 'Used by', 'Expires', 'Date'], rows, 'No certificate is used.');
}

function agentState(agent) {
  if (agent.ready) {
    const endpoints = agent.endpoints ?? [];
    const up = endpoints.filter((endpoint) => endpoint.up).length;
    if (endpoints.length && up < endpoints.length) return badge(up ? 'warn' : 'bad', `${up} of ${endpoints.length} endpoints`);
    return agent.problem ? badge('warn', 'ready, card not refreshed') : badge('good', 'ready');
  }
  return agent.waiting ? badge('idle', 'no answer yet') : badge('bad', 'down');
}

function agentTable(caption, agents) {
  const rows = agents.map((agent) => [
    h('a', { href: `#/agents/${encodeURIComponent(agent.name)}`, 'data-key': agent.name }, agent.name),
    agentState(agent),
    [agent.protocol ? `A2A ${agent.protocol}, ${agent.binding}` : '–', agent.version ? h('small', {}, ` agent ${agent.version}`) : null],
    number(agent.tools.length),
    agent.problem ? h('span', { class: 'problem' }, agent.problem) : code((agent.endpoints ?? []).map((endpoint) => endpoint.url)[0] ?? agent.card),
  ]);
  return table(caption, ['Agent', 'State', 'Version', '#Tools', 'Endpoint, or the reason'], rows, 'There are no agents.');
}

async function agents(name, query) {
  if (name) return agent(name);
  const offset = Number(query.get('offset')) || 0;
  const page = await get(`/api/agents?offset=${offset}`);
  return [
    h('h1', {}, 'Agents'),
    panel(`${number(page.total)} ${page.total === 1 ? 'agent' : 'agents'}`, agentTable('Agents', page.agents), pager('agents', page, page.agents.length)),
  ];
}

function pager(view, page, shown) {
  if (!page.offset && shown >= page.total) return null;
  const link = (offset, text) => h('a', { href: `#/${view}?offset=${offset}`, 'data-key': text }, text);
  return h('nav', { class: 'pager', 'aria-label': 'Pages' },
    page.offset > 0 ? link(Math.max(0, page.offset - 100), 'Previous') : null,
    h('span', {}, `${page.offset + 1}–${page.offset + shown} of ${number(page.total)}`),
    page.offset + shown < page.total ? link(page.offset + 100, 'Next') : null);
}

async function agent(name) {
  const found = await get(`/api/agents/${encodeURIComponent(name)}`);
  const endpoints = (found.endpoints ?? []).map((endpoint) => [
    code(endpoint.url),
    endpoint.up ? badge('good', 'up') : badge('bad', `down, tried again in ${endpoint.triedIn ?? 0} s`),
    number(endpoint.requests),
  ]);
  const skills = found.skills.map((skill) => [
    skill.name, code(skill.id),
    skill.tool ? h('a', { href: `#/call/${encodeURIComponent(skill.tool)}`, 'data-key': skill.tool }, skill.tool) : badge('idle', 'no tool'),
  ]);
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/agents', 'data-key': 'back' }, 'Agents'), ' / '),
    h('h1', {}, found.name, ' ', agentState(found)),
    found.problem ? h('div', { class: 'notice bad' }, h('strong', {}, 'Reason: '), found.problem) : null,
    found.description ? h('p', { class: 'lead' }, found.description) : null,
    h('dl', { class: 'facts' }, [
      ['Title', found.title], ['Version', found.version], ['Provider', found.provider],
      ['Protocol', found.protocol && `A2A ${found.protocol}`],
      ['Streaming', found.streaming === undefined ? undefined : found.streaming ? 'yes' : 'no'],
      ['Card', code(found.card)], ['Source', found.source], ['Last fetched', found.lastSeen && ago(found.lastSeen)],
    ].filter(([, value]) => value).map(([term, value]) => h('div', {}, h('dt', {}, term), h('dd', {}, value)))),
    panel('Endpoints', table('Endpoints', ['URL', 'State', '#Requests now'], endpoints, 'None are known: the card has not been fetched.')),
    panel('Skills and their tools', table('Skills', ['Skill', 'Id', 'Tool'], skills, 'The card has no skills.'),
      found.hasMore ? h('p', { class: 'hint' }, 'The card has more skills than are listed.') : null),
    found.cardProblems.length ? panel('Problems of the card', h('ul', {}, found.cardProblems.map((text) => h('li', {}, text)))) : null,
  ];
}

async function activity() {
  const now = await get('/api/activity');
  const calls = now.calls.map((one) => [one.tool, one.agent, one.caller, duration(one.seconds)]);
  const tasks = now.tasks.map((one) => [
    one.agent, [badge(stateKind(one.state), one.state), one.delay ? h('small', { class: 'problem' }, one.delay) : null], one.owners.join(', ') || '–', ago(one.created), ago(one.changed),
  ]);
  const streams = Object.entries(now.streams).map(([agent, count]) => [agent || '(no agent)', number(count)]);
  const states = Object.entries(now.states).map(([name, count]) => `${count} ${name}`).join(', ');
  return [
    h('h1', {}, 'Activity'),
    figures(figure('Requests now', number(now.requests)), figure('Live calls', number(now.calls.length)), figure('Tasks', number(now.tasks_total)), figure('In background', number(now.background))),
    panel('Live calls', table('Live calls, the longest first', ['Tool', 'Agent', 'Caller', '#Running'], calls, 'No call runs now.')),
    panel('Tasks', states ? h('p', { class: 'hint' }, states) : null,
      table('Tasks, the last that changed first', ['Agent', 'State', 'Callers', 'Begun', 'Changed'], tasks, 'There are no tasks.')),
    panel('Streams', table('Open streams', ['Agent', '#Streams'], streams, 'No stream is open.')),
  ];
}

const stateKind = (name) =>
  ({ completed: 'good', working: 'good', submitted: 'idle', failed: 'bad', rejected: 'bad', canceled: 'idle' })[name] ?? 'warn';

async function call(tool) {
  return callView(await get('/api/overview'), tool);
}

async function audit(_, query) {
  const offset = Number(query.get('offset')) || 0;
  const page = await get(`/api/audit?offset=${offset}`);
  const kind = (decision) => ({ allowed: 'good', ok: 'good', refused: 'bad', not_admitted: 'bad' })[decision] ?? 'warn';
  const rows = page.lines.map((line) => [
    clock(line.at), badge(kind(line.decision), line.decision.replace('_', ' ')), line.caller ?? '–', line.method ?? '–',
    [line.agent, line.tool].filter(Boolean).join(' / ') || line.resource || '–', line.rule ?? '–',
  ]);
  return [
    h('h1', {}, 'Audit'),
    panel('Last decisions', table('Last decisions, the newest first', ['Time', 'Decision', 'Caller', 'Method', 'Target', 'Rule or reason'], rows, 'No decision has been made since the start.'),
      pager('audit', page, page.lines.length)),
  ];
}

async function configuration() {
  const settings = await get('/api/config');
  const { listeners, agents, agents_total: total, sources, rules, admin, health, auth, public_url: url, seal_keys: seals, ...sections } = settings;
  const words = (list) => (list?.length ? list.join(', ') : '–');
  const encryption = (tls) => (tls ? `${tls.profile.toLowerCase()}, client certificates ${tls.client_auth}` : 'none');
  const own = [
    ...listeners.map((one) => [code(one.address), one.serve.join(', '), encryption(one.tls), one.require]),
    ...(admin ? [[code(admin.address), 'admin', encryption(admin.tls), admin.tokens === 1 ? '1 token' : `${admin.tokens} tokens`]] : []),
    ...(health ? [[code(health.address), health.metrics ? 'probes, metrics' : 'probes', 'none', '–']] : []),
  ];
  const credentials = (one) => words([one.authorization, one.api_keys ? 'API key' : null, one.client_certificate ? 'client certificate' : null, ...one.headers].filter(Boolean));
  return [
    h('h1', {}, 'Configuration'),
    h('p', { class: 'lead' }, 'As it was loaded last. Secrets are left out.'),
    panel('Listeners', table('Listeners', ['Address', 'Services', 'TLS', 'Credentials'], own, 'There are none.')),
    panel('Callers', h('dl', { class: 'facts' }, [
      ['Public URL', url ? code(url) : '–'], ['Mechanisms', words(auth.mechanisms)], ['API keys of', words(auth.api_keys)],
      ['Issuers', words(auth.issuers)], ['Seal keys', String(seals)],
    ].map(([term, value]) => h('div', {}, h('dt', {}, term), h('dd', {}, value))))),
    panel('Rules', table('Rules, the first that matches decides', ['Rule', 'Effect', 'Callers', 'Agents', 'Tools', 'Methods'],
      rules.map((one) => [one.name, one.deny ? badge('bad', 'deny') : badge('good', 'allow'), words(one.callers), words(one.agents), words(one.tools), words(one.methods)]),
      'There are none: every caller may do everything.')),
    panel(`Configured agents (${number(total)})`, table('Configured agents', ['Agent', 'Card', 'Credentials', 'Forwarded headers'],
      agents.map((one) => [h('a', { href: `#/agents/${encodeURIComponent(one.name)}`, 'data-key': one.name }, one.name), code(one.card), credentials(one), words(one.forward_headers)]), 'There are none.')),
    sources.length ? panel('Sources of agents', table('Sources of agents', ['Source', 'Place', 'Hosts', 'Headers'],
      sources.map((one) => [one.name, code(one.place), words(one.hosts), words(one.headers)]), 'There are none.')) : null,
    panel('Sections', Object.entries(sections).map(([name, lines]) =>
      h('details', {}, h('summary', {}, name), h('pre', { class: 'result', role: 'group', tabindex: '0', 'aria-label': name }, lines.join('\n'))))),
  ];
}

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/');
  return { view: view in VIEWS ? view : '', rest: decodeURIComponent(rest.join('/')), query: new URLSearchParams(query) };
}

function showNav(current) {
  nav.hidden = false;
  leave.hidden = false;
  fill(nav, Object.entries(VIEWS).map(([path, { title }]) =>
    h('a', { href: `#/${path}`, 'data-key': `nav-${path}`, 'aria-current': path === current ? 'page' : undefined }, title)));
}

/** Shows the view of the address, and refreshes it while it is seen. */
async function show(isNew) {
  const now = ++turn;
  const { view, rest, query } = place();
  const { title, every, load } = VIEWS[view];
  if (isNew) leaveCall();
  showNav(view);
  document.title = `${title} · mcp-a2a-gateway`;
  try {
    const content = await load(rest, query);
    if (now !== turn) return;
    fill(main, ...content);
    state.replaceChildren();
    if (isNew) focusHeading();
  } catch (error) {
    if (now !== turn) return;
    if (error instanceof ApiError && (error.status === 401 || error.status === 403) && isNew) return begin();
    if (error.status === 401) return begin();
    state.replaceChildren(badge('bad', error.message));
    if (isNew) fill(main, h('h1', {}, title), h('div', { class: 'notice bad', role: 'alert' }, error.message));
  }
  if (every) {
    setTimeout(() => {
      if (now === turn) refresh();
    }, every);
  }
}

function refresh() {
  // A hidden page asks for nothing, and goes on when it is seen.
  if (document.hidden) document.addEventListener('visibilitychange', () => show(false), { once: true });
  else show(false);
}

function focusHeading() {
  const heading = main.querySelector('h1');
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function signInView({ token, certificate }, problem) {
  turn += 1;
  nav.hidden = true;
  leave.hidden = true;
  document.title = 'Sign in · mcp-a2a-gateway';
  if (!token && certificate) {
    fill(main, h('h1', {}, 'Sign in'), h('div', { class: 'notice warn' }, 'Present a client certificate of an operator: the browser sent none that is accepted.'));
    return;
  }
  if (!token) {
    fill(main, h('h1', {}, 'This page is closed'), h('div', { class: 'notice warn' }, 'Set ', code('admin.token'),
      ' in the configuration, or ', code('admin.tls'), ' with ', code('client_auth'), ', so that operators can be told from others.'));
    return;
  }
  const input = h('input', { type: 'password', id: 'token', autocomplete: 'current-password', required: true, spellcheck: 'false' });
  const told = h('p', { role: 'alert', class: 'told' }, problem ? badge('bad', problem) : null);
  const form = h('form', { class: 'sign-in stack', 'aria-label': 'Sign in' }, h('h1', {}, 'Sign in'),
    field('Token of operators', input, 'The value of admin.token.'), told,
    h('div', { class: 'row' }, h('button', { class: 'primary', type: 'submit' }, 'Sign in')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    try {
      await signIn(input.value.trim());
      show(true);
    } catch (error) {
      told.replaceChildren(badge('bad', error.message));
      input.focus();
      input.select();
    }
  });
  fill(main, form);
  state.replaceChildren();
  input.focus();
}

/** A certificate is no session: only a request shows whether the browser presented one. */
const isOperator = () => get('/api/overview').then(() => true, () => false);

async function begin() {
  try {
    const way = await session();
    if (way.signed_in || (way.certificate && (await isOperator()))) show(true);
    else signInView(way);
  } catch (error) {
    fill(main, h('h1', {}, 'mcp-a2a-gateway'), h('div', { class: 'notice bad', role: 'alert' }, error.message));
  }
}

leave.addEventListener('click', async () => {
  leaveCall();
  await signOut().catch(() => {});
  history.replaceState(null, '', '#/');
  begin();
});
addEventListener('hashchange', () => show(true));
begin();
