// Tables: sorting the comparison of models, and every cell in figures.

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      // Names from A, figures from the largest; then the other way round.
      const sorted = head.getAttribute("aria-sort");
      const down = column === 0 ? sorted === "ascending" : sorted !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.sort;
      const rows = [...body.rows].sort((a, b) => {
        const [p, q] = [key(a), key(b)];
        // What is not known comes last either way.
        if (p === "" || q === "") return (p === "") - (q === "");
        const order = column === 0 ? p.localeCompare(q) : p - q;
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}

function showTables() {
  for (const table of document.querySelectorAll("#summary [data-sweep]")) table.hidden = Number(table.dataset.sweep) !== state.sweep;
  const cells = document.getElementById("cells");
  cells.hidden = false;
  if (cells.open) buildCellTables();
}

function buildCellTables() {
  const sweep = here();
  const columns = sweep.x.labels.length;
  const tables = sweep.grids.map((grid) => {
    const head = element("tr", {}, element("th", { scope: "col" }, "learning rate"),
      ...sweep.x.labels.map((label) => element("th", { scope: "col" }, `${sweep.x.name} ${label}`)));
    const rows = sweep.y.labels.map((label, row) => element("tr", {}, element("th", { scope: "row" }, raised(label)),
      ...sweep.x.labels.map((_, column) => element("td", {}, cellText(grid, row * columns + column)))));
    const when = state.epoch === null ? "best epoch" : `epoch ${state.epoch}`;
    const caption = `${modelLabel(grid.model)}, ${grid.side}: ${state.split ? "validation" : "training"} accuracy, worst / mean / best seed, ${when}, per cent`;
    return element("div", { class: "plain" }, element("table", {}, element("caption", {}, caption),
      element("thead", {}, head), element("tbody", {}, ...rows)));
  });
  document.getElementById("cell-tables").replaceChildren(...tables);
}

function cellText(grid, cell) {
  const about = grid.cells[cell];
  if (!about) return "";
  const values = triple(grid, cell, state.split, state.epoch, false);
  const text = values.every(Number.isNaN) ? "no result" : values.map((v) => percent(v)).join(" / ");
  return about.diverged ? `${text} (${about.diverged} diverged)` : text;
}
