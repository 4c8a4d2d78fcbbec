// The form that calls a tool, as the caller with the credential that is typed in.

import { mcp } from './client.js';
import { badge, code, duration, field, fill, h, panel } from './elements.js';

// The credential stays in this page's memory alone.
let caller = { kind: 'none', secret: '' };
let tools = [];
let running = null;

const credential = () => ({ none: undefined, token: `Bearer ${caller.secret}`, key: `Key ${caller.secret}` })[caller.kind];

/** Returns the view. */
export function callView(overview, wanted) {
  const work = h('div', { class: 'work' });
  const picker = h('select', { id: 'tool' });
  const form = h('form', { class: 'stack', 'aria-label': 'Arguments' });
  const status = h('p', { role: 'status', 'aria-live': 'polite', class: 'hint' });
  const secret = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', value: caller.secret });
  const kind = h('select', {},
    h('option', { value: 'none' }, 'None: an anonymous caller'),
    h('option', { value: 'token' }, 'Bearer token'),
    overview.takes_keys ? h('option', { value: 'key' }, 'API key') : null);
  kind.value = caller.kind;
  const secretField = field('Token or key', secret, 'Kept in this page alone, and sent with each call.');
  const showKind = () => (secretField.hidden = kind.value === 'none');
  kind.addEventListener('change', showKind);
  showKind();

  const load = async () => {
    caller = { kind: kind.value, secret: secret.value.trim() };
    status.textContent = 'Loading tools …';
    try {
      tools = await listTools();
      status.textContent = `${tools.length} tools are visible to this caller.`;
    } catch (error) {
      tools = [];
      status.replaceChildren(badge('bad', error.message));
    }
    picker.replaceChildren(...tools.map((tool) => h('option', { value: tool.name }, tool.name)));
    if (wanted && tools.some((tool) => tool.name === wanted)) picker.value = wanted;
    choose();
  };
  const choose = () => {
    const tool = tools.find((one) => one.name === picker.value);
    form.replaceChildren();
    if (!tool) return;
    const inputs = schemaForm(tool.inputSchema ?? {});
    const send = h('button', { type: 'submit', class: 'primary' }, 'Call');
    form.append(h('p', { class: 'about' }, tool.description ?? ''), ...inputs.fields, h('div', { class: 'row' }, send));
    form.onsubmit = (event) => {
      event.preventDefault();
      let values;
      try {
        values = inputs.read();
      } catch (error) {
        status.replaceChildren(badge('bad', error.message));
        return;
      }
      run(work, tool, values, send);
    };
  };
  picker.addEventListener('change', choose);
  const who = h('form', { class: 'stack', 'aria-label': 'Caller' },
    field('Credential of the caller', kind), secretField,
    h('div', { class: 'row' }, h('button', { type: 'submit' }, 'Load tools')), status);
  who.addEventListener('submit', (event) => {
    event.preventDefault();
    load();
  });
  const view = [
    h('h1', {}, 'Call a tool'),
    h('p', { class: 'lead' }, 'A call passes the authentication, rules and limits of the listener ', code(overview.calls_through ?? '–'),
      ', as the caller with this credential. Being an operator gives it no right.'),
    h('div', { class: 'columns' },
      h('div', {}, panel('Caller', who), panel('Tool', field('Tool', picker), form)),
      panel('Course of the call', work)),
  ];
  work.append(h('p', { class: 'empty' }, 'Nothing has been called yet.'));
  load();
  return view;
}

/** Ends a running call, when its view is left. */
export function leaveCall() {
  running?.abort();
  running = null;
}

async function listTools() {
  const found = [];
  let cursor;
  do {
    const page = await mcp({ method: 'tools/list', params: cursor ? { cursor } : {}, credential: credential() });
    found.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor && found.length < 2000);
  return found;
}

/** Calls a tool until it has a result: after each question, and while the gateway only has a handle. */
async function run(work, tool, values, send) {
  leaveCall();
  const abort = new AbortController();
  running = abort;
  const begun = performance.now();
  const log = h('ol', { class: 'course', tabindex: '0', 'aria-label': 'Progress' });
  const told = h('div', { role: 'log', 'aria-live': 'polite' }, log);
  const bar = h('progress', { 'aria-label': 'Progress of the call' });
  const elapsed = h('span', { class: 'hint' });
  const stop = h('button', { type: 'button', onclick: () => abort.abort() }, 'Stop');
  const top = h('div', { class: 'row' }, h('strong', {}, tool.name), elapsed, stop);
  const question = h('div', {});
  const outcome = h('div', { role: 'status', 'aria-live': 'polite' });
  fill(work, top, bar, told, question, outcome);
  const timer = setInterval(() => (elapsed.textContent = duration((performance.now() - begun) / 1000)), 200);
  const tell = (text) => {
    const at = duration((performance.now() - begun) / 1000);
    log.append(h('li', {}, h('span', { class: 'hint' }, at), ' ', text));
    while (log.children.length > 300) log.firstChild.remove();
    log.scrollTop = log.scrollHeight;
  };
  send.disabled = true;
  try {
    const params = { name: tool.name, arguments: values };
    for (;;) {
      const result = await mcp({
        method: 'tools/call', name: tool.name, params, credential: credential(), signal: abort.signal,
        onNotification: (method, notified) => {
          if (method !== 'notifications/progress') return;
          if (notified.total) {
            bar.max = notified.total;
            bar.value = notified.progress;
          }
          tell(notified.message ?? `step ${notified.progress}`);
        },
      });
      if (result.resultType !== 'input_required') {
        outcome.append(resultView(result, (performance.now() - begun) / 1000));
        break;
      }
      const requests = Object.entries(result.inputRequests ?? {});
      if (requests.length) {
        tell('the agent asks a question');
        params.inputResponses = await ask(question, requests, abort.signal);
        question.replaceChildren();
        tell('the answer is sent');
      } else {
        delete params.inputResponses;
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      params.requestState = result.requestState;
    }
  } catch (error) {
    const text = error.name === 'AbortError' ? 'stopped' : error.message;
    question.replaceChildren();
    outcome.append(badge(error.name === 'AbortError' ? 'idle' : 'bad', text));
  } finally {
    clearInterval(timer);
    bar.remove();
    stop.remove();
    send.disabled = false;
    if (running === abort) running = null;
  }
}

function ask(place, requests, signal) {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(new DOMException('', 'AbortError')));
    const readers = requests.map(([id, request]) => ({ id, message: request.params?.message ?? '', ...schemaForm(request.params?.requestedSchema ?? {}, `q-${id}`) }));
    const problem = h('p', { role: 'alert', class: 'hint' });
    const answer = (action) => {
      const responses = {};
      try {
        for (const reader of readers) {
          responses[reader.id] = action === 'accept' ? { action, content: reader.read() } : { action };
        }
      } catch (error) {
        problem.replaceChildren(badge('bad', error.message));
        return;
      }
      resolve(responses);
    };
    const form = h('form', { class: 'question stack', 'aria-label': 'Question of the agent' },
      readers.map((reader) => [h('p', { class: 'asked' }, reader.message), reader.fields]),
      problem,
      h('div', { class: 'row' },
        h('button', { type: 'submit', class: 'primary' }, 'Answer'),
        h('button', { type: 'button', onclick: () => answer('decline') }, 'Decline')));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      answer('accept');
    });
    place.replaceChildren(form);
    form.querySelector('input, select, textarea, button')?.focus();
  });
}

function resultView(result, seconds) {
  const blocks = (result.content ?? []).map((block) => {
    if (block.type === 'text') return h('pre', { class: 'result', tabindex: '0' }, block.text);
    return h('pre', { class: 'result', tabindex: '0' }, JSON.stringify(shortened(block), null, 2));
  });
  const structured = result.structuredContent
    ? h('details', {}, h('summary', {}, 'Structured content'), h('pre', { class: 'result', tabindex: '0' }, JSON.stringify(result.structuredContent, null, 2)))
    : null;
  const state = result.isError ? badge('bad', `error after ${duration(seconds)}`) : badge('good', `done after ${duration(seconds)}`);
  return h('div', { class: 'outcome' }, h('p', {}, state), blocks, structured);
}

// Files are shown by their size.
function shortened(block) {
  return JSON.parse(JSON.stringify(block, (_, value) =>
    (typeof value === 'string' && value.length > 4000 ? `${value.slice(0, 200)} … (${value.length} characters)` : value)));
}

/** Returns the fields of an object schema, and a function that reads their values. */
function schemaForm(schema, prefix = 'argument') {
  const required = new Set(schema.required ?? []);
  const inputs = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const control = controlOf(property, required.has(name));
    control.id = `${prefix}-${name}`;
    const label = `${property.title ?? name}${required.has(name) ? '' : ' (optional)'}`;
    return { name, property, control, node: field(label, control, property.description) };
  });
  const read = () => {
    const values = {};
    for (const { name, property, control } of inputs) {
      const value = valueOf(property, control, name);
      if (value !== undefined) values[name] = value;
      else if (required.has(name) && property.type === 'string' && !property.enum) values[name] = '';
    }
    return values;
  };
  // Rare arguments do not stand in the way of the usual ones.
  const isUsual = ({ name, property }, at) => required.has(name) || at < 1 || (property.type === 'string' && inputs.length < 3);
  const rare = inputs.filter((input, at) => !isUsual(input, at)).map((input) => input.node);
  const more = rare.length ? h('details', {}, h('summary', {}, 'More arguments'), h('div', { class: 'stack' }, rare)) : null;
  return { fields: [...inputs.filter(isUsual).map((input) => input.node), more].filter(Boolean), read };
}

const choices = (property) =>
  property.enum?.map((value, at) => [value, property.enumNames?.[at] ?? value])
  ?? (property.oneOf ?? property.anyOf)?.filter((one) => 'const' in one).map((one) => [one.const, one.title ?? one.const]);

function controlOf(property, isRequired) {
  const options = choices(property);
  if (options?.length) {
    const blank = isRequired ? [] : [h('option', { value: '' }, '–')];
    const select = h('select', {}, blank, options.map(([value, text]) => h('option', { value }, String(text))));
    if (property.default !== undefined) select.value = property.default;
    return select;
  }
  switch (property.type) {
    case 'boolean': {
      const box = h('input', { type: 'checkbox' });
      box.checked = property.default === true;
      return box;
    }
    case 'integer':
    case 'number':
      return h('input', { type: 'number', step: property.type === 'integer' ? '1' : 'any', min: property.minimum, max: property.maximum, required: isRequired, value: property.default ?? '' });
    case 'string':
      if (['email', 'date', 'uri'].includes(property.format)) {
        const type = property.format === 'uri' ? 'url' : property.format;
        return h('input', { type, required: isRequired, value: property.default ?? '' });
      }
      return h('textarea', { rows: '2', required: isRequired, maxlength: property.maxLength, value: property.default ?? '' });
    default:
      return h('textarea', { rows: '3', spellcheck: 'false', class: 'json', placeholder: 'JSON', value: property.default === undefined ? '' : JSON.stringify(property.default) });
  }
}

function valueOf(property, control, name) {
  if (control.type === 'checkbox') return control.checked;
  const text = control.value;
  if (text === '') return undefined;
  if (control.tagName === 'SELECT') return choices(property).find(([value]) => String(value) === text)?.[0];
  if (property.type === 'string') return text;
  if (property.type === 'integer' || property.type === 'number') return Number(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is not JSON`);
  }
}
