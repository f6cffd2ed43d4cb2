// State, controls, and what a pointed-at cell says.

const state = { sweep: 0, split: 1, show: "seeds", epoch: null, over: null, cell: null, model: 0 };
const maps = [];
let playing = null;

const get = (id) => document.getElementById(id);

function choices(place, name, options, set) {
  const field = get(place);
  field.querySelectorAll("label").forEach((label) => label.remove());
  options.forEach(([value, text]) => {
    const input = element("input", { type: "radio", name, value, checked: String(state[name]) === String(value) });
    input.addEventListener("change", () => set(value));
    field.append(element("label", { class: "choice" }, input, element("span", {}, text)));
  });
}

function refresh() {
  redraw();
  buildKey();
  if (get("cells").open) buildCellTables();
}

function setSplit(split) {
  state.split = split;
  refresh();
  buildCurves();
  buildRobustness();
}

function setEpoch(epoch) {
  state.epoch = epoch;
  get("best").setAttribute("aria-pressed", String(epoch === null));
  get("epoch-out").textContent = epoch === null ? "best epoch" : `epoch ${epoch} of ${get("epoch").max}`;
  if (epoch !== null) get("epoch").value = epoch;
  refresh();
}

function play(on) {
  clearInterval(playing);
  playing = null;
  get("play").textContent = on ? "■" : "▶";
  get("play").setAttribute("aria-label", on ? "Stop" : "Play the epochs");
  if (!on) return;
  const length = Number(get("epoch").max);
  if (state.epoch === null || state.epoch >= length) setEpoch(1);
  playing = setInterval(() => (state.epoch >= length ? play(false) : setEpoch(state.epoch + 1)), 200);
}

/** What the colours mean; marks only if there are any. */
function buildKey() {
  const sweep = here();
  const swatch = (rgb, text, inside = "") => {
    const box = element("i", {}, inside);
    box.style.background = typeof rgb === "string" ? rgb : css(rgb);
    return element("span", {}, box, text);
  };
  const ramp = (low, stops, high) => {
    const box = element("i", { class: "ramp" });
    box.style.background = `linear-gradient(90deg, ${stops.map(css).join(", ")})`;
    return element("span", {}, low, box, high);
  };
  const key = [];
  if (state.show === "seeds") {
    key.push(element("span", {}, element("b", {}, "Red worst seed, green mean, blue best:")),
      swatch([245, 250, 255], "every seed learns"), swatch([40, 150, 250], "some do"),
      swatch([20, 60, 230], "one does"), swatch([25, 30, 40], "none does"));
  } else if (state.show === "cases") {
    key.push(element("span", {}, element("b", {}, "Red “argmin” case, green “first”, blue “argmax”:")),
      swatch([250, 250, 250], "all three"), swatch([245, 250, 10], "“first” and “argmin”"), swatch([10, 250, 10], "only “first”"), swatch([10, 10, 10], "none"));
  } else key.push(element("span", {}, element("b", {}, `Accuracy, ${{ worst: "worst seed", mean: "mean", best: "best seed" }[state.show]}`)), ramp("0", CIVIDIS, "100 %"));
  if (maps.some((entry) => entry.side === "difference")) {
    key.push(ramp("ours lower by 30 points", [LESS[0], LESS[1], hex("--neutral"), ...MORE], "higher by 30"));
  }
  const cells = sweep.grids.flatMap((grid) => grid.cells);
  const hatched = swatch(`repeating-linear-gradient(135deg, var(--void) 0 3px, var(--hatch) 3px 4px)`, "no result");
  if (maps.some((entry) => entry.side !== "difference" && hasGap(sweep, entry))) key.push(hatched);
  if (cells.some((c) => c && c.diverged && c.diverged === c.seeds.length)) key.push(swatch("transparent", "every seed diverged", "×"));
  if (cells.some((c) => c && c.diverged && c.diverged < c.seeds.length)) key.push(swatch("transparent", "some diverged", "•"));
  if (cells.some((c) => c && c.failed)) key.push(swatch("transparent", "runs failed", "–"));
  get("key").replaceChildren(...key);
}

function hasGap(sweep, entry) {
  const grid = gridOf(sweep, entry.model, entry.side);
  return grid && grid.cells.some((_, cell) => shown(sweep, entry.model, entry.side, cell).every(Number.isNaN));
}

/** Points at a cell in every map; the tip is about one model. */
function hover(entry, cell = null, x = 0, y = 0) {
  const tip = get("tip");
  state.over = entry ? cell : null;
  placeMarks();
  tip.hidden = !entry;
  if (!entry) return;
  tip.replaceChildren(...tipContent(here(), entry.model, cell));
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  tip.style.left = `${Math.min(Math.max(left, 8), Math.max(innerWidth - box.width - 8, 8))}px`;
  tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(y - 12 - box.height, 8) : y + 16}px`;
}

function tipContent(sweep, model, cell) {
  const columns = sweep.x.labels.length;
  const [column, row] = [cell % columns, Math.floor(cell / columns)];
  const rate = sweep.y.values[row];
  const rateText = sweep.y.labels[row].includes("^") ? ` = ${Number(rate.toPrecision(3))}` : "";
  const heading = element("h3", {}, `${modelLabel(model)}: ${sweep.x.name} ${sweep.x.labels[column]}, rate ${raised(sweep.y.labels[row])}${rateText}`);
  const cases = state.show === "cases";
  const heads = cases ? ["argmin", "first", "argmax"] : ["worst", "mean", "best"];
  const rows = [];
  const notes = [];
  for (const side of ["ours", "published"]) {
    const grid = gridOf(sweep, model, side);
    const about = grid?.cells[cell];
    if (!about) continue;
    const values = triple(grid, cell, state.split, state.epoch, cases);
    rows.push(element("tr", {}, element("th", { scope: "row" }, side), ...values.map((v) => element("td", {}, percent(v)))));
    notes.push(`${side}: ${describe(grid, about)}`);
  }
  if (rows.length === 2) {
    const values = shown(sweep, model, "difference", cell);
    rows.push(element("tr", {}, element("th", { scope: "row" }, "difference"),
      ...values.map((v) => element("td", {}, Number.isNaN(v) ? "–" : `${v < 0 ? "−" : "+"}${Math.abs(100 * v).toFixed(1)}`))));
  }
  if (rows.length === 0) return [heading, element("p", {}, "Nothing was run here.")];
  const grid = gridOf(sweep, model, "ours") ?? gridOf(sweep, model, "published");
  return [heading,
    element("table", {}, element("thead", {}, element("tr", {}, element("th"), ...heads.map((h) => element("th", { scope: "col" }, h)))), element("tbody", {}, ...rows)),
    element("p", {}, notes.join("; ")), element("p", {}, grid.about)];
}

/** A cell in words, for screen readers. */
function spoken(sweep, entry, cell) {
  return tipContent(sweep, entry.model, cell).map((part) => part.textContent).join(". ");
}

function choose(model, cell) {
  [state.model, state.cell] = [model, cell];
  placeMarks();
  buildCurves();
  const section = get("curves").getBoundingClientRect();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (section.top > innerHeight - 160) get("curves").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
}

function openSweep(index) {
  play(false);
  state.sweep = index;
  const sweep = here();
  get("title").textContent = sweep.title;
  get("lead").textContent = sweep.lead;
  document.querySelectorAll("#sweeps button").forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
  const length = Math.max(...sweep.grids.map((grid) => grid.length), 1);
  get("epoch").max = length;
  get("when").hidden = length < 2;
  const cases = sweep.cases ? [["cases", "Cases"]] : [];
  if (!sweep.cases && state.show === "cases") state.show = "seeds";
  choices("split", "split", [[1, "Validation"], [0, "Training"]], setSplit);
  choices("show", "show", [["seeds", "Seeds (RGB)"], ...cases, ["mean", "Mean"], ["worst", "Worst"], ["best", "Best"]], (show) => { state.show = show; buildMaps(); refresh(); });
  state.over = null;
  // The first model's best setting, so that there is a curve to see.
  const first = sweep.grids.map(bestCell).findIndex((best) => best !== null);
  state.cell = first < 0 ? null : bestCell(sweep.grids[first]).cell;
  state.model = first < 0 ? 0 : sweep.grids[first].model;
  get("maps").hidden = false;
  buildMaps();
  setEpoch(null);
  buildCurves();
  buildRobustness();
  showTables();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  get("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function start() {
  const stored = () => { try { return localStorage.getItem("nap-theme"); } catch { return null; } };
  setTheme(stored() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  get("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("nap-theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
    if (report.sweeps.length) refresh();
  });
  document.querySelectorAll("table.models").forEach(makeSortable);
  if (!report.sweeps.length) return;
  if (report.sweeps.length > 1) {
    report.sweeps.forEach((sweep, i) => {
      const button = element("button", { type: "button" }, sweep.name);
      button.addEventListener("click", () => openSweep(i));
      get("sweeps").append(button);
    });
  }
  get("best").addEventListener("click", () => { play(false); setEpoch(null); });
  get("epoch").addEventListener("input", () => { play(false); setEpoch(Number(get("epoch").value)); });
  get("play").addEventListener("click", () => play(playing === null));
  get("cells").addEventListener("toggle", () => get("cells").open && buildCellTables());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    buildMaps();
    buildKey();
    buildCurves();
    buildRobustness();
  });
  openSweep(0);
}

start();
