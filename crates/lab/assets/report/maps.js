// The maps: a column per model, ours above published above their difference.

const GUTTER = 48;
const GAP = 18;
const SIDES = ["ours", "published", "difference"];

/** What a map shows at a cell: numbers, or a difference. */
function shown(sweep, model, side, cell) {
  const cases = state.show === "cases";
  const read = (of) => {
    const grid = gridOf(sweep, model, of);
    return grid ? triple(grid, cell, state.split, state.epoch, cases) : [NaN, NaN, NaN];
  };
  if (side !== "difference") return read(side);
  const [a, b] = [read("ours"), read("published")];
  return a.map((x, i) => x - b[i]);
}

/** Which of three numbers a difference is of. */
const differenceChannel = () => ({ worst: 0, best: 2 })[state.show] ?? 1;

function drawMap(canvas, sweep, model, side, size) {
  const [columns, rows] = [sweep.x.labels.length, sweep.y.labels.length];
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(columns * size.width * scale);
  canvas.height = Math.round(rows * size.height * scale);
  canvas.style.width = `${columns * size.width}px`;
  canvas.style.height = `${rows * size.height}px`;
  const context = canvas.getContext("2d");
  const [empty, hatch, neutral] = [hex("--void"), hex("--hatch"), hex("--neutral")];
  const grid = gridOf(sweep, model, side === "published" ? "published" : "ours");
  const edge = (i, length) => Math.round(i * length * scale);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const cell = row * columns + column;
      const values = shown(sweep, model, side, cell);
      let rgb;
      if (side === "difference") {
        const x = values[differenceChannel()];
        rgb = Number.isNaN(x) ? null : differenceColour(x, neutral);
      } else rgb = cellColour(values, state.show);
      const [x, y] = [edge(column, size.width), edge(row, size.height)];
      const [w, h] = [edge(column + 1, size.width) - x, edge(row + 1, size.height) - y];
      context.fillStyle = css(rgb ?? empty);
      context.fillRect(x, y, w, h);
      const about = side !== "difference" && grid ? grid.cells[cell] : null;
      if (!rgb) strike(context, x, y, w, h, css(hatch));
      if (about) mark(context, x, y, w, h, about, rgb ?? empty, scale);
    }
  }
}

/** Nothing there: diagonal lines. */
function strike(context, x, y, w, h, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, w / 18);
  context.beginPath();
  for (let at = -h; at < w; at += Math.max(4, w / 3)) {
    context.moveTo(x + at, y + h);
    context.lineTo(x + at + h, y);
  }
  context.stroke();
  context.restore();
}

/** A cross where every seed diverged, a dot where some did, a bar where some failed. */
function mark(context, x, y, w, h, about, rgb, scale) {
  if (!about.diverged && !about.failed) return;
  context.fillStyle = context.strokeStyle = bright(rgb) ? "#000" : "#fff";
  context.lineWidth = 1.2 * scale;
  const [cx, cy, r] = [x + w / 2, y + h / 2, Math.min(w, h) / 5];
  context.beginPath();
  if (about.diverged && about.diverged === about.seeds.length) {
    context.moveTo(cx - r, cy - r);
    context.lineTo(cx + r, cy + r);
    context.moveTo(cx + r, cy - r);
    context.lineTo(cx - r, cy + r);
    context.stroke();
  } else if (about.diverged) {
    context.arc(cx, cy, r / 2, 0, 7);
    context.fill();
  } else {
    context.moveTo(cx - r, cy);
    context.lineTo(cx + r, cy);
    context.stroke();
  }
}

function sideTitle(sweep, side) {
  const counts = sweep.grids.filter((g) => g.side === side).map((g) => g.seeds);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const range = least === most ? most : `${least} to ${most}`;
  if (side === "ours") return ["Ours", `, ${range} ${most === 1 ? "seed" : "seeds"} a setting`];
  if (side === "published") return ["Published", `, Richter & Wattenhofer 2020, ${range} seeds a setting`];
  const what = state.show === "cases" ? "“first” case" : ["worst seed", "mean", "best seed"][differenceChannel()];
  return ["Difference", ` of the ${what}, ours − published`];
}

/** Labels that do not touch: every first, second, third ... of them. */
function thinned(labels, room, width) {
  const longest = Math.max(...labels.map((label) => label.length)) * width + 4;
  const step = Math.max(1, Math.ceil(longest / room));
  return labels.map((label, i) => (i % step === 0 ? label : null));
}

/** Builds the maps of the sweep anew, for the width there is. */
function buildMaps() {
  const sweep = here();
  const place = document.getElementById("panels");
  place.replaceChildren();
  const [columns, rows] = [sweep.x.labels.length, sweep.y.labels.length];
  const models = sweep.models.map((_, model) => model);
  const has = (side) => sweep.grids.some((grid) => grid.side === side);
  const both = models.some((m) => gridOf(sweep, m, "ours") && gridOf(sweep, m, "published"));
  const sides = SIDES.filter((side) => (side === "difference" ? both : has(side)));
  const total = place.clientWidth - GUTTER;
  const least = Math.max(130, columns * 5);
  const beside = Math.max(1, Math.min(Math.floor(total / (least + GAP)), Math.max(models.length, 3)));
  const width = Math.max(4, Math.min(Math.floor((total / beside - GAP) / columns), 44));
  const height = Math.max(6, Math.min(Math.round(width * 0.82), rows > 16 ? 12 : 20));
  const size = { width, height };
  maps.length = 0;
  for (let first = 0; first < models.length; first += beside) {
    const group = models.slice(first, first + beside);
    const panel = Math.max(columns * width, Math.min(110, total / beside - GAP));
    const band = element("div", { class: "band" });
    band.style.gridTemplateColumns = `${GUTTER}px repeat(${group.length}, ${panel}px)`;
    band.style.columnGap = `${GAP}px`;
    band.append(element("span"));
    for (const model of group) band.append(title(sweep, model));
    for (const side of sides) {
      const [strong, rest] = sideTitle(sweep, side);
      band.append(element("div", { class: "side" }, element("b", {}, strong), rest));
      band.append(rates(sweep, size));
      for (const model of group) band.append(panelOf(sweep, model, side, size));
    }
    band.append(element("span", { class: "axis" }));
    for (const _ of group) band.append(ticks(sweep, size));
    band.append(element("span"));
    band.append(element("span", { class: "axis" }, `${sweep.x.title} →`));
    place.append(band);
  }
  redraw();
}

function title(sweep, model) {
  const grid = gridOf(sweep, model, "ours") ?? gridOf(sweep, model, "published");
  const best = bestCell(grid);
  const note = best === null ? "no results" : `best mean ${percent(best.value)}`;
  return element("div", { class: "name" }, modelLabel(model), element("small", {}, note));
}

/** The cell with the best mean validation accuracy. */
function bestCell(grid) {
  let best = null;
  grid.cells.forEach((_, cell) => {
    const value = triple(grid, cell, 1, null, false)[1];
    if (!Number.isNaN(value) && (best === null || value > best.value)) best = { cell, value };
  });
  return best;
}

function rates(sweep, size) {
  const made = element("div", { class: "rates", "aria-hidden": "true" });
  const step = Math.max(1, Math.ceil(13 / size.height));
  sweep.y.labels.forEach((label, i) => {
    if (i % step) return;
    const text = element("span", {}, raised(label));
    text.style.top = `${(i + 0.5) * size.height}px`;
    made.append(text);
  });
  return made;
}

function ticks(sweep, size) {
  const made = element("div", { class: "xs", "aria-hidden": "true" });
  thinned(sweep.x.labels, size.width, 6.6).forEach((label, i) => {
    if (label === null) return;
    const text = element("span", {}, raised(label));
    text.style.left = `${(i + 0.5) * size.width}px`;
    made.append(text);
  });
  return made;
}

function panelOf(sweep, model, side, size) {
  const needed = side === "difference" ? ["ours", "published"] : [side];
  if (needed.some((of) => !gridOf(sweep, model, of))) {
    const why = { ours: "no runs", published: "not published", difference: "–" }[side];
    return element("div", { class: "none" }, why);
  }
  const [over, chosen] = [element("span", { class: "at over", hidden: true }), element("span", { class: "at chosen", hidden: true })];
  const canvas = element("canvas", { "data-model": sweep.models[model].name, "data-side": side });
  const map = element("div", {
    class: "map", tabindex: "0", role: "application",
    "aria-label": `${modelLabel(model)}, ${side}: map of ${sweep.x.title} and learning rate; arrow keys move, Enter chooses`,
  }, canvas, over, chosen);
  const entry = { map, canvas, over, chosen, model, side, size };
  maps.push(entry);
  listen(entry, sweep);
  return map;
}

function listen(entry, sweep) {
  const [columns, rows] = [sweep.x.labels.length, sweep.y.labels.length];
  const at = (event) => {
    const box = entry.canvas.getBoundingClientRect();
    const inside = (x, n) => Math.min(Math.max(Math.floor(x), 0), n - 1);
    return inside((event.clientY - box.top) / entry.size.height, rows) * columns
      + inside((event.clientX - box.left) / entry.size.width, columns);
  };
  entry.map.addEventListener("pointermove", (event) => hover(entry, at(event), event.clientX, event.clientY));
  entry.map.addEventListener("pointerleave", () => hover(null));
  entry.map.addEventListener("blur", () => hover(null));
  entry.map.addEventListener("click", (event) => choose(entry.model, at(event)));
  entry.map.addEventListener("keydown", (event) => {
    const cell = state.over ?? state.cell ?? 0;
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    const moved = {
      ArrowLeft: [row, Math.max(column - 1, 0)], ArrowRight: [row, Math.min(column + 1, columns - 1)],
      ArrowUp: [Math.max(row - 1, 0), column], ArrowDown: [Math.min(row + 1, rows - 1), column],
      Home: [row, 0], End: [row, columns - 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(entry.model, cell);
    else if (event.key === "Escape") hover(null);
    else if (moved) {
      const box = entry.canvas.getBoundingClientRect();
      const next = moved[0] * columns + moved[1];
      hover(entry, next, box.left + (moved[1] + 1) * entry.size.width, box.top + (moved[0] + 1) * entry.size.height);
      document.getElementById("live").textContent = spoken(sweep, entry, next);
    } else return;
    event.preventDefault();
  });
}

/** Draws every map, and the marks on it. */
function redraw() {
  const sweep = here();
  for (const entry of maps) drawMap(entry.canvas, sweep, entry.model, entry.side, entry.size);
  placeMarks();
}

function placeMarks() {
  const columns = here().x.labels.length;
  for (const entry of maps) {
    for (const [box, cell] of [[entry.over, state.over], [entry.chosen, state.cell]]) {
      box.hidden = cell === null || (box === entry.over && cell === state.cell);
      if (box.hidden) continue;
      const { width, height } = entry.size;
      box.style.width = `${width}px`;
      box.style.height = `${height}px`;
      box.style.transform = `translate(${(cell % columns) * width}px, ${Math.floor(cell / columns) * height}px)`;
    }
  }
}
