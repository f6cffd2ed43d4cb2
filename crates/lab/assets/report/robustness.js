// Robustness curves: the best mean accuracies of all settings, the largest first.

const ROBUST = { legend: 288, left: 34, right: 10, top: 10, bottom: 40 };

function sortedMeans(grid) {
  const means = grid.cells.map((_, cell) => triple(grid, cell, state.split, null, false)[1]);
  return means.filter((v) => !Number.isNaN(v)).sort((a, b) => b - a);
}

function buildRobustness() {
  const sweep = here();
  const lines = sweep.grids.map((grid) => ({ grid, means: sortedMeans(grid) })).filter(({ means }) => means.length > 1);
  const section = document.getElementById("robustness");
  section.hidden = lines.length === 0;
  if (section.hidden) return;
  document.getElementById("robustness-note").textContent =
    `All settings of the grid by their mean ${state.split ? "validation" : "training"} accuracy, the best setting left: `
    + "the further right a line stays high, the less it matters how the model was set. Settings without runs are left out.";
  const place = document.getElementById("robustness-chart");
  const small = innerWidth <= 720;
  const { left, right, top, bottom } = ROBUST;
  const width = place.clientWidth - (small ? 0 : ROBUST.legend);
  const height = small ? 300 : 380;
  const both = new Set(sweep.grids.map((grid) => grid.side)).size > 1;
  const x = (share) => left + (width - left - right) * share;
  const y = (v) => top + (height - top - bottom) * (1 - v);
  const picture = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Robustness curves" });
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(shape("line", { class: v ? "rule" : "base", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
    picture.append(shape("text", { x: left - 7, y: y(v) + 4, "text-anchor": "end" }, String(100 * v)));
    picture.append(shape("text", { x: x(v), y: height - bottom + 17, "text-anchor": { 0: "start", 1: "end" }[v] ?? "middle" }, `${100 * v}%`));
  }
  picture.append(shape("text", { x: x(0), y: height - 5 }, "share of settings →"));
  const drawn = lines.map(({ grid, means }) => {
    const at = (i) => x(means.length > 1 ? i / (means.length - 1) : 0);
    const style = `fill:none;stroke:${modelColour(grid.model)};stroke-width:${grid.side === "ours" || !both ? 2.2 : 1.5};`
      + (both && grid.side !== "ours" ? "stroke-dasharray:5 3;" : "");
    const made = shape("path", { d: path(means.map((v, i) => [at(i), y(v)])), style });
    picture.append(made);
    const average = means.reduce((a, b) => a + b, 0) / means.length;
    return { grid, means, made, average };
  });
  drawn.sort((a, b) => b.average - a.average);
  const one = (grid) => grid.side === "ours" || !gridOf(sweep, grid.model, "ours");
  nameLines(picture, drawn.filter(({ grid }) => one(grid)), drawn, x, y);
  const legend = element("ul", { class: "legend" });
  legend.append(element("li", { class: "head" }, element("span"), element("span", {}, "Model"), element("span", {}, "mean of all settings")));
  for (const { grid, made, average } of drawn) {
    const stroke = element("i", { class: both && grid.side !== "ours" ? "dashed" : null });
    stroke.style.borderColor = modelColour(grid.model);
    const side = both ? element("small", {}, ` ${grid.side}`) : "";
    const entry = element("li", { tabindex: "0" }, stroke, element("span", {}, element("b", {}, modelLabel(grid.model)), side), percent(average));
    const emphasise = (on) => drawn.forEach((other) => { other.made.style.opacity = on && other.made !== made ? 0.15 : 1; });
    for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]]) {
      entry.addEventListener(event, () => emphasise(on));
    }
    legend.append(entry);
  }
  place.replaceChildren(picture, legend);
}

/** Writes each model's name beside its line, where neither a line nor a name is in the way. */
function nameLines(picture, named, drawn, x, y) {
  const placed = [];
  /** Where a line falls below a level, if it does before its end. */
  const crossing = (means, level) => {
    const at = means.findIndex((v) => v < level);
    return at > 0 ? x((at - 0.5) / (means.length - 1)) : null;
  };
  for (const { grid, means } of named) {
    const [text, width] = [modelLabel(grid.model), 9 * modelLabel(grid.model).length + 10];
    const free = (level) => {
      const from = crossing(means, level);
      if (from === null || from + width > x(1)) return null;
      const meets = (other) => [-0.03, 0, 0.03].some((d) => {
        const at = other === means ? null : crossing(other, level + d);
        return at !== null && at > from - 6 && at < from + width;
      });
      const touches = placed.some(([px, py, w]) => Math.abs(py - y(level)) < 15 && px < from + width && from < px + w);
      return touches || drawn.some((line) => meets(line.means)) ? null : from;
    };
    const levels = Array.from({ length: 22 }, (_, i) => 0.9 - 0.035 * i);
    // Best beside a steep part, where the line itself is not in the way either.
    const steep = (l) => crossing(means, l - 0.06) !== null && crossing(means, l - 0.06) < free(l) + 12;
    const level = levels.find((l) => free(l) !== null && steep(l)) ?? levels.find((l) => free(l) !== null);
    // A line without such a place has its name above its end, over other such names.
    const above = placed.filter(([, , , end]) => end).length;
    const [px, py, anchor] = level !== undefined ? [free(level) + 8, y(level), "start"]
      : [x(1), y(means[means.length - 1]) - 12 - 14 * above, "end"];
    placed.push([px, py, width, level === undefined]);
    picture.append(shape("text", { class: "label", x: px, y: py + 4, "text-anchor": anchor, style: `fill:${modelColour(grid.model)}` }, text));
  }
}
