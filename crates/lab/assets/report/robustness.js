// Robustness curves: the best mean accuracies of all settings, the largest first.

const ROBUST = { width: 760, height: 380, left: 40, right: 8, top: 10, bottom: 40 };

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
  const small = document.getElementById("robustness-chart").clientWidth < 640;
  const { left, right, top, bottom } = ROBUST;
  const [width, height] = small ? [368, 300] : [ROBUST.width, ROBUST.height];
  const x = (share) => left + (width - left - right) * share;
  const y = (v) => top + (height - top - bottom) * (1 - v);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Robustness curves" });
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(shape("line", { class: v ? "rule" : "base", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
    picture.append(shape("text", { x: left - 7, y: y(v) + 4, "text-anchor": "end" }, String(100 * v)));
    picture.append(shape("text", { x: x(v), y: height - bottom + 17, "text-anchor": { 0: "start", 1: "end" }[v] ?? "middle" }, `${100 * v}%`));
  }
  picture.append(shape("text", { x: x(0), y: height - 5 }, "share of settings →"));
  const drawn = lines.map(({ grid, means }) => {
    const at = (i) => x(means.length > 1 ? i / (means.length - 1) : 0);
    const style = `fill:none;stroke:${modelColour(grid.model)};stroke-width:${grid.side === "ours" ? 2.4 : 1.6};`
      + (grid.side === "ours" ? "" : "stroke-dasharray:5 3;");
    const made = shape("path", { d: path(means.map((v, i) => [at(i), y(v)])), style });
    picture.append(made);
    const average = means.reduce((a, b) => a + b, 0) / means.length;
    return { grid, means, made, average };
  });
  drawn.sort((a, b) => b.average - a.average);
  const legend = element("ul", { class: "legend" });
  legend.append(element("li", { class: "head" }, element("span"), "Model", "average of all settings"));
  for (const { grid, made, average } of drawn) {
    const stroke = element("i", { class: grid.side === "ours" ? null : "dashed" });
    stroke.style.borderColor = modelColour(grid.model);
    const side = lines.some((l) => l.grid.side !== grid.side) ? element("small", {}, ` ${grid.side}`) : "";
    const entry = element("li", { tabindex: "0" }, stroke, element("span", {}, element("b", {}, modelLabel(grid.model)), side), percent(average));
    const emphasise = (on) => drawn.forEach((other) => { other.made.style.opacity = on && other.made !== made ? 0.15 : 1; });
    for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]]) {
      entry.addEventListener(event, () => emphasise(on));
    }
    legend.append(entry);
  }
  document.getElementById("robustness-chart").replaceChildren(picture, legend);
}
