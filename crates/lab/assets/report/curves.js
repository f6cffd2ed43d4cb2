// Learning curves of the chosen setting, a panel per model, and how to run it again.

const CHART = { least: 165, most: 280, gap: 16, height: 128, left: 26, right: 6, top: 6, bottom: 18 };

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** Places of the values that are numbers. */
const points = (values, x, y) => values.map((v, i) => [x(i + 1), y(v)]).filter(([, v]) => !Number.isNaN(v));

function band(grid, cell, x, y, style) {
  const [low, high] = [curve(grid, cell, state.split, 0), curve(grid, cell, state.split, 2)];
  const area = [...points(high, x, y), ...points(low, x, y).reverse()];
  return shape("path", { d: area.length ? `${path(area)}Z` : "", style });
}

function line(values, x, y, style) {
  return shape("path", { d: path(points(values, x, y)), style: `fill:none;stroke-linejoin:round;${style}` });
}

function buildCurves() {
  const sweep = here();
  const section = document.getElementById("curves");
  section.hidden = state.cell === null;
  if (section.hidden) return;
  const columns = sweep.x.labels.length;
  const [x, y] = [sweep.x.labels[state.cell % columns], sweep.y.labels[Math.floor(state.cell / columns)]];
  document.getElementById("curves-title").textContent =
    `Learning curves at ${sweep.x.title} ${x}, learning rate ${raised(y)}`;
  const sides = new Set(sweep.grids.map((grid) => grid.side));
  const what = [];
  if (sides.has("ours")) what.push("Line: our mean; band: worst to best seed; hairlines: seeds");
  if (sides.has("published")) what.push(sides.has("ours") ? "grey, dashed: published" : "Line: published mean; band: worst to best of five seeds");
  document.getElementById("curves-note").textContent =
    `${state.split ? "Validation" : "Training"} accuracy in per cent over the epochs. ${what.join("; ")}.`;
  const place = document.getElementById("curve-panels");
  const beside = Math.max(1, Math.floor((place.clientWidth + CHART.gap) / (CHART.least + CHART.gap)));
  const count = Math.min(beside, Math.max(sweep.models.length, 2));
  const width = Math.min(Math.floor((place.clientWidth + CHART.gap) / count) - CHART.gap, CHART.most);
  place.style.gridTemplateColumns = `repeat(${count}, ${width}px)`;
  place.replaceChildren(...sweep.models.map((_, model) => curvePanel(sweep, model, state.cell, width)));
  buildRerun(sweep);
}

function curvePanel(sweep, model, cell, width) {
  const [ours, theirs] = [gridOf(sweep, model, "ours"), gridOf(sweep, model, "published")];
  const length = Math.max(ours?.length ?? 0, theirs?.length ?? 0, 1);
  const { height, left, right, top, bottom } = CHART;
  const x = (epoch) => left + (width - left - right) * (length > 1 ? (epoch - 1) / (length - 1) : 0.5);
  const y = (v) => top + (height - top - bottom) * (1 - v);
  const picture = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const v of [0, 0.5, 1]) {
    picture.append(shape("line", { class: v ? "rule" : "base", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
    picture.append(shape("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, String(100 * v)));
  }
  picture.append(shape("text", { x: x(1), y: height - 4, "text-anchor": length > 1 ? "start" : "middle" }, "1"));
  if (length > 1) picture.append(shape("text", { x: x(length), y: height - 4, "text-anchor": "end" }, `epoch ${length}`));
  const colour = modelColour(model);
  const grey = ours ? "var(--soft)" : colour;
  if (theirs) {
    picture.append(band(theirs, cell, x, y, `fill:${grey};opacity:${ours ? 0.13 : 0.2}`));
    picture.append(line(curve(theirs, cell, state.split, 1), x, y, `stroke:${grey};stroke-width:${ours ? "1.4;stroke-dasharray:4 3" : "2"}`));
  }
  if (ours) {
    picture.append(band(ours, cell, x, y, `fill:${colour};opacity:0.2`));
    for (const run of runCurves(ours, cell, state.split)) {
      picture.append(line(run, x, y, `stroke:${colour};stroke-width:0.7;opacity:0.55`));
    }
    picture.append(line(curve(ours, cell, state.split, 1), x, y, `stroke:${colour};stroke-width:2.2`));
    const length1 = Math.max(...points(curve(ours, cell, state.split, 1), x, y).map(([px]) => px), -1);
    if (ours.length === 1 && length1 >= 0) {
      const v = curve(ours, cell, state.split, 1)[0];
      picture.append(shape("circle", { cx: length1, cy: y(v), r: 3, style: `fill:${colour}` }));
    }
  }
  const best = ours && known(ours, cell) ? ours : theirs;
  const value = best ? triple(best, cell, state.split, null, false)[1] : NaN;
  const note = Number.isNaN(value) ? "no runs" : percent(value);
  picture.append(shape("title", {}, `${modelLabel(model)}: best mean ${note}`));
  return element("figure", { class: model === state.model ? "chosen" : null, "data-model": sweep.models[model].name },
    element("figcaption", {}, modelLabel(model), element("small", {}, note)), picture);
}

function buildRerun(sweep) {
  const place = document.getElementById("rerun");
  place.replaceChildren();
  const grid = gridOf(sweep, state.model, "ours") ?? gridOf(sweep, state.model, "published");
  const about = grid?.cells[state.cell];
  const label = modelLabel(state.model);
  if (!about) {
    place.append(element("p", {}, `${label} has no runs at this setting.`));
    return;
  }
  place.append(element("p", {}, `${label}: ${describe(grid, about)}. ${grid.about}.`));
  if (!about.command) return;
  const command = element("code", {}, about.command);
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", () => {
    // Pages from disk may lack the clipboard: the text is selected then.
    const select = () => getSelection().selectAllChildren(command);
    if (navigator.clipboard) navigator.clipboard.writeText(about.command).then(() => { copy.textContent = "Copied"; }, select);
    else select();
  });
  place.append(element("p", {}, "Run it again:"), element("div", { class: "command" }, command, copy));
}

/** Seeds and how their runs ended. */
function describe(grid, about) {
  const count = (n, what) => (n ? [`${n} ${what}`] : []);
  const seeds = about.seeds;
  const list = grid.side === "published" ? `${grid.seeds} seeds`
    : seeds.length ? `${seeds.length === 1 ? "seed" : "seeds"} ${ranges(seeds)}` : "no finished run";
  return [list, ...count(about.diverged, "diverged"), ...count(about.failed, "failed"), ...count(about.missing, "not run yet")].join(", ");
}

/** 0, 1, 2, 7 as 0–2, 7. */
function ranges(seeds) {
  const parts = [];
  for (const seed of seeds) {
    const last = parts[parts.length - 1];
    if (last && seed === last[1] + 1) last[1] = seed;
    else parts.push([seed, seed]);
  }
  return parts.map(([a, b]) => (a === b ? a : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}
