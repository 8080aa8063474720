const svgNamespace = "http://www.w3.org/2000/svg";

function svg(tag, attributes) {
  const made = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Height over width of the weight, between 1:4 and 4:1. */
function aspect({ layout, problem }) {
  const [out, into] = (problem.block || "").split("x").map(Number);
  const ratio = (layout.rows * (out || 1)) / (layout.cols * (into || out || 1));
  return Math.min(4, Math.max(0.25, ratio || 1));
}

/** The layout from afar: one path for each shade, the darker the more blocks are there. */
function layoutFigure(entry) {
  const { picture, rows, cols, blocks, density } = entry.layout;
  const width = picture.length ? picture[0].length : 1;
  const caption = `${rows} × ${cols} blocks, ${blocks} present (${percent(density)})`;
  const pixels = 320 / Math.max(1, aspect(entry));
  const drawing = svg("svg", { class: "layout", role: "img", "aria-label": caption, viewBox: `0 0 ${width} ${picture.length || 1}`,
    preserveAspectRatio: "none", width: pixels, height: pixels * aspect(entry), "shape-rendering": "crispEdges" });
  for (let shade = 1; shade < 16; ++shade) {
    const digit = shade.toString(16);
    const path = picture.flatMap((row, y) => [...row].map((one, x) => (one === digit ? `M${x} ${y}h1v1h-1z` : ""))).join("");
    if (path) drawing.append(svg("path", { d: path, fill: "currentColor", "fill-opacity": 0.2 + (0.8 * shade) / 15 }));
  }
  return element("figure", {}, drawing, element("figcaption", {}, caption));
}

function factsText(entry) {
  const { tried, failed, pruned, untried } = entry.candidates;
  const tie = entry.tie ? "; the best ties with another" : "";
  const second = entry.margin === null ? "" : `, ${percent(entry.margin)} ahead of the second${tie}`;
  const gain = entry.speedup === null ? "The default has no time" : `The best is ${times(entry.speedup)} as fast as the default`;
  return `${gain}${second}. ${tried} candidates tried, ${failed} failed, ${pruned} pruned, ${untried} untried; ` +
    `${digits(entry.compile_ms / 1000)} s of compiling, ${digits(entry.seconds)} s of tuning.`;
}

/** One problem, closed; what it holds is made when it is opened for the first time: there may be a thousand. */
function problemDetails(entry, at) {
  const side = entry.side ? `${entry.side}: ` : "";
  const details = element("details", { class: "problem", id: `problem-${at}` }, element("summary", {}, side + entry.title));
  details.fill = () => {
    if (details.children.length === 1) fillProblem(details, entry);
  };
  details.addEventListener("toggle", details.fill);
  return details;
}

function fillProblem(details, entry) {
  // Times of the finals are compared round by round; the others' are of fewer samples, taken at other times.
  const ranked = [...entry.points].sort((a, b) => (b.rounds > 0) - (a.rounds > 0) || a.median_us - b.median_us);
  const figures = [];
  if (ranked.length) figures.push(candidatesPlot(entry, ranked));
  if (entry.peak.gflops > 0 && entry.peak.gbytes > 0) figures.push(rooflinePlot(entry));
  details.append(
    element("p", {}, machine(entry.environment), element("br"), element("span", { class: "note" }, entry.environment.policy)),
    element("p", {}, factsText(entry)),
    timesTable(entry),
    element("div", { class: "figures" }, layoutFigure(entry), ...figures.map(({ node }) => node)),
    reasonsTable(entry.candidates),
    element("details", { class: "candidates" }, element("summary", {}, "All candidates with a time"), candidatesTable(ranked)));
  for (const { plot } of figures) draw(plot);
}

/** Its plots can be drawn from now on: a closed element has no size. */
function openProblem(details) {
  details.open = true;
  details.fill();
}

function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

function summaryText({ problems, summary }) {
  if (problems.length === 0) return "No records.";
  const count = `${problems.length} ${problems.length === 1 ? "problem" : "problems"}`;
  const gain = summary.tuned > 0
    ? `; tuned ${times(summary.speedup)} as fast as the default (geometric mean of ${summary.tuned})` : "";
  return `${count}${gain}. sparsekiln ${summary.version}.`;
}

/** Opens the problem that the address names. */
function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (named && named.matches("details")) openProblem(named);
}

/** On paper all problems are open, in the colours of light paper. */
function followPrinting(problems) {
  let opened = [];
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    opened = problems.filter((details) => !details.open);
    opened.forEach(openProblem);
    redraw();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    for (const details of opened) details.open = false;
    redraw();
  });
}

function redraw() {
  for (const plot of plots) if (plot.chart) draw(plot);
}

function showReport(data) {
  const main = document.getElementById("main");
  document.getElementById("summary").textContent = summaryText(data);
  if (data.comparison) {
    const { a, b, compared } = data.comparison;
    main.append(section("Comparison", element("p", {}, `A is ${a}, B is ${b}.`), comparisonTable(compared)));
  }
  const problems = data.problems.map(problemDetails);
  if (problems.length) {
    const overview = section("Overview");
    const sparsity = sparsityPlot(data.problems);
    if (sparsity) overview.append(sparsity.node);
    overview.append(overviewTable(data.problems));
    main.append(overview, section("Problems", ...problems));
    if (sparsity) draw(sparsity.plot);
  }
  if (problems.length <= 6) problems.forEach(openProblem);
  addEventListener("hashchange", openNamed);
  openNamed();
  followPrinting(problems);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** For whoever tests the page in a browser: it is done, so many plots are there, and nothing sticks out. */
function markDone() {
  const { documentElement: root } = document;
  root.dataset.plots = plots.filter(({ chart }) => chart).length;
  root.dataset.width = root.clientWidth;
  root.dataset.overflow = Math.max(0, root.scrollWidth - root.clientWidth);
  root.dataset.state = "done";
}

showReport(JSON.parse(document.getElementById("data").textContent));
requestAnimationFrame(() => setTimeout(markDone));
