// What the page shows: the report's description and its numbers.
//
// Numbers are whole ten-thousandths of accuracy, 16 bits each, little-endian; MISSING where there
// is none. Each grid says where its blocks begin:
//   best    [cell][training, validation][three channels of seeds, three of cases]
//   epochs  [cell][training, validation][epoch][worst, mean, best seed]
//   cases   [cell][training, validation][epoch][argmin, first, argmax], or absent
//   runs    [cell][training, validation][seed][epoch], or absent
const MISSING = 65535;
const UNIT = 10000;
const CHANNELS = 3;

const report = JSON.parse(document.getElementById("report-data").textContent);
const numbers = decode(document.getElementById("report-values").textContent);

function decode(text) {
  const bytes = atob(text.trim());
  const raw = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) raw[i] = bytes.charCodeAt(i);
  return new Uint16Array(raw.buffer);
}

const number = (place) => (numbers[place] === MISSING ? NaN : numbers[place] / UNIT);

/** A cell's three numbers: over the seeds, or of the cases; at an epoch from 1, or at the best. */
function triple(grid, cell, split, epoch, cases) {
  let place;
  if (epoch === null) place = grid.best + ((cell * 2 + split) * 2 + (cases ? 1 : 0)) * CHANNELS;
  else {
    const block = cases ? grid.cases : grid.epochs;
    if (block === undefined || epoch > grid.length) return [NaN, NaN, NaN];
    place = block + ((cell * 2 + split) * grid.length + epoch - 1) * CHANNELS;
  }
  return [number(place), number(place + 1), number(place + 2)];
}

/** A channel by epoch: 0 worst, 1 mean, 2 best seed. */
function curve(grid, cell, split, channel) {
  const start = grid.epochs + (cell * 2 + split) * grid.length * CHANNELS + channel;
  return Array.from({ length: grid.length }, (_, i) => number(start + i * CHANNELS));
}

/** One curve per seed, if the page has them. */
function runCurves(grid, cell, split) {
  if (grid.runs === undefined) return [];
  const start = (seed) => grid.runs + ((cell * 2 + split) * grid.seeds + seed) * grid.length;
  const count = grid.cells[cell] ? grid.cells[cell].seeds.length : 0;
  return Array.from({ length: count }, (_, seed) =>
    Array.from({ length: grid.length }, (_, i) => number(start(seed) + i)));
}

/** A model's grid in a sweep. */
const gridOf = (sweep, model, side) =>
  sweep.grids.find((grid) => grid.model === model && grid.side === side);

/** Whether a cell of a grid has numbers. */
const known = (grid, cell) => numbers[grid.best + (cell * 2 + 1) * 2 * CHANNELS + 1] !== MISSING
  || numbers[grid.best + cell * 4 * CHANNELS + 1] !== MISSING;

const percent = (x, digits = 1) => (Number.isNaN(x) ? "–" : (100 * x).toFixed(digits));

/** 0.3^10 with a raised exponent. */
function raised(label) {
  return label.replace(/\^(-?\d+)$/, (_, digits) =>
    [...digits].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d] ?? "⁻").join(""));
}

/** An element with attributes, texts and children. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The sweep on show. */
const here = () => report.sweeps[state.sweep];
const modelColour = (model) => `var(--${here().models[model].colour})`;
const modelLabel = (model) => here().models[model].label;
