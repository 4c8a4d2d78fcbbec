// Elements that the views are made of. Text of agents and callers is only ever text, never markup.

/** Creates an element: `h('a', { href }, 'text', child)`. A handler begins with `on`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces the content of an element, and keeps focus and scroll position where they were. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const key = element.contains(focused) ? focused.dataset.key : undefined;
  const scrolls = [...element.querySelectorAll('.scroll')].map((box) => box.scrollLeft);
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  [...element.querySelectorAll('.scroll')].forEach((box, at) => (box.scrollLeft = scrolls[at] ?? 0));
  if (key) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** A word with a colour and a sign, so that the colour is not needed. */
export function badge(kind, text) {
  const sign = { good: '●', bad: '▲', warn: '◆', idle: '○' }[kind];
  return h('span', { class: `badge ${kind}` }, h('span', { 'aria-hidden': 'true' }, sign), ` ${text}`);
}

/** A table with a caption for screen readers. A row is a list of cells, or `{ cells, ...attributes }`. */
export function table(caption, heads, rows, empty) {
  if (!rows.length) return h('p', { class: 'empty' }, empty);
  const head = h('tr', {}, heads.map((text) => h('th', { scope: 'col', class: numeric(text) }, text.replace('#', ''))));
  const body = rows.map((row) =>
    h('tr', {}, row.map((cell, at) => {
      const attributes = { class: numeric(heads[at]), 'data-label': heads[at].replace('#', '') };
      const content = h('span', {}, cell);
      return at ? h('td', attributes, content) : h('th', { scope: 'row', ...attributes }, content);
    })));
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption },
    h('table', {}, h('caption', {}, caption), h('thead', {}, head), h('tbody', {}, body)));
}

// Columns whose head begins with `#` hold numbers.
const numeric = (head) => (head.startsWith('#') ? 'number' : undefined);

/** A part of a view with a heading. */
export function panel(title, ...content) {
  const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return h('section', { class: 'panel', 'aria-labelledby': id }, h('h2', { id }, title), content);
}

/** One figure with its name. */
export const figure = (name, value, note) =>
  h('div', { class: 'figure' }, h('dt', {}, name), h('dd', {}, String(value), note ? h('small', {}, note) : null));

export const figures = (...all) => h('dl', { class: 'figures' }, all);

export const code = (text) => h('code', {}, text);

/** A field with its label. */
export function field(label, control, hint) {
  const id = control.id || `field-${label.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`;
  control.id = id;
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`);
  return h('div', { class: 'field' }, h('label', { for: id }, label), control, hint ? h('small', { id: `${id}-hint` }, hint) : null);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** A moment as the time since it; the moment itself is its title. */
export function ago(unixMs) {
  if (!unixMs) return '–';
  const date = new Date(unixMs);
  return h('time', { datetime: date.toISOString(), title: date.toLocaleString() }, `${duration(Math.max(0, Date.now() - unixMs) / 1000)} ago`);
}

export const clock = (unixMs) => {
  const date = new Date(unixMs);
  return h('time', { datetime: date.toISOString(), title: date.toLocaleString() }, date.toLocaleTimeString());
};

export const number = (value) => new Intl.NumberFormat().format(value);
