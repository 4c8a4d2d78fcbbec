// Plots as SVG: lines over the last minutes.

const SPACE = 'http://www.w3.org/2000/svg';
const HEIGHT = 150;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Rounds up to 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/**
 * A plot of series `{ name, kind, values }` over `times`. Values that are null are gaps. The summary is its
 * text for those that do not see it.
 */
export function plot({ title, times, series, format, summary }) {
  // Units are pixels, more or less, so that the text has one size everywhere.
  const WIDTH = Math.min(560, innerWidth - 60);
  const figure = document.createElement('figure');
  figure.className = 'plot';
  const caption = document.createElement('figcaption');
  const name = document.createElement('h3');
  name.textContent = title;
  const legend = document.createElement('ul');
  legend.className = 'legend';
  for (const one of series) {
    const item = document.createElement('li');
    item.className = one.kind;
    const last = [...one.values].reverse().find((value) => value !== null);
    item.textContent = one.name;
    const value = document.createElement('b');
    value.textContent = last === undefined ? '–' : format(last);
    item.append(' ', value);
    legend.append(item);
  }
  caption.append(name, legend);
  figure.append(caption);
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...values));
  const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
  const x = (time) => LEFT + ((time - from) / Math.max(1, to - from)) * (WIDTH - LEFT - 8);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${title}. ${summary}` });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    svg.append(s('line', { class: 'grid', x1: LEFT, x2: WIDTH - 8, y1: at, y2: at }));
    svg.append(s('text', { class: 'scale', x: LEFT - 6, y: at + 3.5, 'text-anchor': 'end' }, format(top * part)));
  }
  const label = (time) => new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: to - from < 300_000 ? '2-digit' : undefined });
  if (times.length > 1) {
    svg.append(s('text', { class: 'scale', x: LEFT, y: HEIGHT - 5 }, label(from)));
    svg.append(s('text', { class: 'scale', x: WIDTH - 8, y: HEIGHT - 5, 'text-anchor': 'end' }, label(to)));
  }
  for (const one of series) {
    let path = '';
    let isOpen = false;
    one.values.forEach((value, at) => {
      if (value === null) {
        isOpen = false;
        return;
      }
      path += `${isOpen ? 'L' : 'M'}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}`;
      // A point between two gaps is a short line.
      if (!isOpen && (one.values[at + 1] ?? null) === null) path += 'h1.5';
      isOpen = true;
    });
    if (path) svg.append(s('path', { class: `line ${one.kind}`, d: path }));
  }
  figure.append(svg);
  return figure;
}
