// Colours of cells.

// Cividis (Nuñez, Anderton and Renslow 2018): even in lightness, the same to most kinds of
// colour vision.
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];
// Blue to orange through the page's neutral.
const LESS = [[33, 102, 172], [108, 168, 214]];
const MORE = [[240, 150, 60], [179, 78, 6]];
/** Differences of this size and larger have the strongest colour. */
const FULL = 0.3;

const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));

function along(stops, t) {
  const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return mix(stops[low], stops[low + 1], place - low);
}

const channel = (x) => Math.round(255 * Math.min(Math.max(x, 0), 1));

function hex(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/** The colour of a difference. */
function differenceColour(x, neutral) {
  return x < 0 ? along([neutral, LESS[1], LESS[0]], -x / FULL) : along([neutral, ...MORE], x / FULL);
}

/** The colour of a cell's three numbers, or null. */
function cellColour(values, show) {
  if (show === "seeds" || show === "cases") {
    if (values.every(Number.isNaN)) return null;
    return values.map((x) => (Number.isNaN(x) ? 0 : channel(x)));
  }
  const x = values[["worst", "mean", "best"].indexOf(show)];
  return Number.isNaN(x) ? null : along(CIVIDIS, x);
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
const bright = (rgb) => 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] > 130;
