/** A cell: what is shown, and what rows are sorted by. */
function cell(shown, value = shown, style = "") {
  return { shown, value, style };
}

function numberCell(value, format = digits) {
  return cell(format(value), value ?? null, "number");
}

/** Nothing sorts behind everything, in both directions. */
function order(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return direction * (a - b);
  return direction * String(a).localeCompare(String(b), "en", { numeric: true });
}

/** A table whose headings sort it: `columns` are {title, style}, `rows` are lists of cells. */
function sortableTable(columns, rows, name) {
  const body = element("tbody");
  const show = () => body.replaceChildren(...rows.map((row) => row.line));
  rows = rows.map((cells) => ({
    cells,
    line: element("tr", {}, ...cells.map(({ shown, style }) => element("td", { class: style }, shown))),
  }));
  const headings = columns.map(({ title, style = "" }, at) => {
    const button = element("button", { type: "button" }, title);
    const heading = element("th", { scope: "col", class: style }, button);
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      for (const one of headings) one.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      rows.sort((a, b) => order(a.cells[at].value, b.cells[at].value, ascending ? 1 : -1));
      show();
    });
    return heading;
  });
  show();
  const table = element("table", { "data-table": name }, element("thead", {}, element("tr", {}, ...headings)), body);
  return element("div", { class: "scroll" }, table);
}

const number = (title) => ({ title, style: "number" });

function overviewTable(problems) {
  const columns = [
    { title: "Problem", style: "wide" },
    { title: "Device", style: "name" },
    number("Best µs"),
    number("Default µs"),
    number("Speed-up"),
    number("Margin"),
    number("Of the floor"),
    number("Over dense"),
    number("Tried"),
    number("Failed"),
    number("Pruned"),
    number("Compiled s"),
    { title: "Times" },
  ];
  const rows = problems.map((problem, at) => [
    cell(element("a", { href: `#problem-${at}` }, problem.title), problem.title),
    cell(problem.environment.device),
    numberCell(median(problem.best)),
    numberCell(median(problem.default)),
    numberCell(problem.speedup, times),
    cell(problem.tie ? `tie (${percent(problem.margin)})` : percent(problem.margin), problem.margin, "number"),
    numberCell(problem.floor_share, percent),
    numberCell(problem.speedup_over_dense, times),
    numberCell(problem.candidates.tried),
    numberCell(problem.candidates.failed),
    numberCell(problem.candidates.pruned),
    numberCell(problem.compile_ms / 1000),
    cell(source(problem.best)),
  ]);
  return sortableTable(columns, rows, "overview");
}

function comparisonTable(compared) {
  const columns = [{ title: "Problem", style: "wide" }, number("A µs"), number("B µs"), number("B / A"), { title: "Verdict" }];
  const rows = compared.map((pair) => [
    cell(pair.title),
    numberCell(median(pair.a && pair.a.best)),
    numberCell(median(pair.b && pair.b.best)),
    numberCell(pair.ratio),
    cell(pair.verdict, pair.verdict, pair.verdict === "regression" || pair.verdict === "faster" ? pair.verdict : ""),
  ]);
  return sortableTable(columns, rows, "comparison");
}

/** Best, default, second, floor and dense of one problem. */
function timesTable(problem) {
  const columns = [{ title: "" }, number("Median µs"), number("20 % µs"), number("80 % µs"), { title: "Times" },
    { title: "Config", style: "wide" }];
  const row = (name, time) => [cell(name), numberCell(median(time)), numberCell(time.p20_us), numberCell(time.p80_us),
    cell(source(time)), cell(time.config)];
  const bound = (name, us, said) => [cell(name), numberCell(us), numberCell(null), numberCell(null),
    cell(problem.peak.measured ? "measured peak" : "published peak"), cell(said)];
  const rows = [];
  if (problem.best) rows.push(row("best", problem.best));
  rows.push(row("default", problem.default));
  if (problem.second) rows.push(row("second", problem.second));
  rows.push(bound("floor", problem.floor_us, `${percent(problem.floor_share)} of it reached`));
  if (problem.dense_us !== null)
    rows.push(bound("dense", problem.dense_us, `at the machine's peak; the best is ${times(problem.speedup_over_dense)} as fast`));
  return sortableTable(columns, rows, "times");
}

function reasonsTable(candidates) {
  const columns = [{ title: "Outcome" }, number("Candidates"), { title: "Reason", style: "wide" }];
  const rows = [];
  for (const outcome of ["failed", "pruned", "untried"])
    for (const { reason, count } of candidates[`why_${outcome}`]) rows.push([cell(outcome), numberCell(count), cell(reason)]);
  return rows.length ? sortableTable(columns, rows, "reasons") : "";
}

function candidatesTable(points) {
  const columns = [number("Rank"), number("Median µs"), number("20 % µs"), number("80 % µs"), { title: "Times" }, number("Model µs"),
    number("Samples"), number("Finals"), number("Compiled ms"), number("Registers"), { title: "Config", style: "wide" }];
  const rows = points.map((point, at) => [numberCell(at + 1), numberCell(point.median_us), numberCell(point.p20_us),
    numberCell(point.p80_us), cell(source(point)), numberCell(point.predicted_us || null), numberCell(point.samples), numberCell(point.rounds || null),
    numberCell(point.compile_ms || null), numberCell(point.registers || null), cell(point.config)]);
  return sortableTable(columns, rows, "candidates");
}
