// Every plot on the page: its canvas, and how it is configured with the colours of the moment.
const plots = [];

function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  return { paper: named("paper"), ink: named("ink"), quiet: named("quiet"), rule: named("rule"), best: named("best"),
    standard: named("default"), bad: named("bad"), good: named("good") };
}

function draw(plot) {
  if (plot.chart) plot.chart.destroy();
  plot.chart = new Chart(plot.canvas, plot.configure(colours()));
}

/** A plot with a caption. It is drawn when `draw` is called: a canvas in a closed element has no size. */
function figure(kind, caption, configure) {
  const canvas = element("canvas", { role: "img", "aria-label": caption, "data-plot": kind });
  const plot = { canvas, configure, chart: null };
  plots.push(plot);
  return { plot, node: element("figure", {}, element("div", { class: "plot" }, canvas), element("figcaption", {}, caption)) };
}

/** Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten. */
function logarithmicTick(value) {
  const leading = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5].some((one) => Math.abs(leading - one) < 1e-6) ? digits(value) : null;
}

function axis(title, colour, options = {}) {
  const ticks = { color: colour.quiet, maxRotation: 0 };
  if (options.type === "logarithmic") ticks.callback = logarithmicTick;
  return { type: "linear", title: { display: true, text: title, color: colour.ink }, grid: { color: colour.rule, borderColor: colour.rule },
    ...options, ticks: { ...ticks, ...options.ticks } };
}

/** `say` gives the lines of a point's tooltip, the first of them the title. */
function scatter(datasets, x, y, colour, say, legend = true) {
  const labels = { color: colour.ink, usePointStyle: true, boxHeight: 7, filter: (item) => item.text !== "" };
  const tooltip = {
    filter: ({ raw }) => raw.of !== undefined,
    callbacks: { title: ([item]) => (item ? say(item.raw.of)[0] : ""), label: ({ raw }) => say(raw.of).slice(1) },
  };
  return {
    type: "scatter",
    data: { datasets },
    options: { animation: false, responsive: true, maintainAspectRatio: false, scales: { x, y },
      interaction: { mode: "nearest", intersect: false },
      plugins: { legend: { display: legend, position: "bottom", labels }, tooltip } },
  };
}

function points(label, data, colour, options = {}) {
  return { label, data, backgroundColor: colour, borderColor: colour, pointRadius: 4, pointHoverRadius: 6, ...options };
}

function line(label, data, colour, options = {}) {
  return { label, data, borderColor: colour, backgroundColor: colour, showLine: true, pointRadius: 0, pointHitRadius: 0,
    pointHoverRadius: 0, borderWidth: 1.5, pointStyle: "line", spanGaps: false, ...options };
}

function timeLines(time) {
  const samples = time.rounds ? `, ${time.rounds} rounds of the finals` : time.samples ? `, ${time.samples} samples` : "";
  return [`${digits(time.median_us)} µs (${digits(time.p20_us)} to ${digits(time.p80_us)})`, `${source(time)}${samples}`];
}

/** Time against rank. */
function candidatesPlot(problem, ranked) {
  const best = problem.best ? problem.best.config : null;
  const standard = problem.default.config;
  const placed = ranked.map((of, at) => ({ x: at + 1, y: of.median_us, of }));
  const kind = ({ of }) => (of.config === best ? "best" : of.config === standard ? "default" : of.rounds ? "finals" : of.measured ? "measured" : "modelled");
  const all = ranked.flatMap((of) => [of.p20_us, of.p80_us]).concat(problem.floor_us || []);
  const wide = Math.max(...all) > 8 * Math.min(...all);
  const caption = `${ranked.length} candidates with a time, those of the finals first, then the fastest`;
  return figure("candidates", caption, (colour) => {
    const of = (wanted) => placed.filter((point) => kind(point) === wanted);
    const spans = placed.flatMap(({ x, of: { p20_us, p80_us } }) => [{ x, y: p20_us }, { x, y: p80_us }, { x: NaN, y: NaN }]);
    const sets = [
      points("best", of("best"), colour.best, { pointRadius: 6, pointStyle: "rectRot" }),
      points("default", of("default"), colour.standard, { pointRadius: 5, pointStyle: "triangle" }),
      points("finals", of("finals"), colour.ink),
      points("measured", of("measured"), colour.quiet),
      points("modelled", of("modelled"), colour.quiet, { backgroundColor: colour.paper }),
    ].filter((set) => set.data.length > 0);
    const end = placed.length + 1;
    const floor = problem.floor_us > 0 ? [{ x: 0, y: problem.floor_us }, { x: end, y: problem.floor_us }] : [];
    sets.push(line("", spans, colour.quiet), line(floor.length ? "floor" : "", floor, colour.good, { borderDash: [6, 4] }));
    const x = axis("rank", colour, { min: 0, max: end, ticks: { precision: 0 } });
    const y = axis("time of a launch, µs", colour, wide ? { type: "logarithmic" } : { beginAtZero: true });
    return scatter(sets, x, y, colour, (one) => [lines(one.config, 40), ...timeLines(one)].flat(), true);
  });
}

/** GFLOP/s against FLOP per byte, both logarithmic, under the machine's roof. */
function rooflinePlot(problem) {
  const { gflops, gbytes } = problem.peak;
  const marks = [];
  const mark = (name, flops, bytes, us, how) => {
    if (flops > 0 && bytes > 0 && us > 0) marks.push({ name, intensity: flops / bytes, rate: flops / us / 1000, us, how });
  };
  mark("best", problem.flops, problem.bytes, median(problem.best), source(problem.best));
  mark("default", problem.flops, problem.bytes, median(problem.default), source(problem.default));
  if (problem.dense) mark("dense", problem.dense.flops, problem.dense.bytes, problem.dense_us, "at the machine's peak");
  const ridge = gflops / gbytes;
  const reach = [ridge, ...marks.map(({ intensity }) => intensity)];
  const from = Math.min(...reach) / 4;
  const to = Math.max(...reach) * 4;
  const roof = [{ x: from, y: from * gbytes }, { x: ridge, y: gflops }, { x: to, y: gflops }];
  const caption = `Roofline: ${digits(gflops)} GFLOP/s and ${digits(gbytes)} GB/s, ${problem.peak.measured ? "measured" : "from public documents"}`;
  return figure("roofline", caption, (colour) => {
    const looks = { best: [colour.best, "rectRot"], default: [colour.standard, "triangle"], dense: [colour.quiet, "circle"] };
    const sets = marks.map((of) => points(of.name, [{ x: of.intensity, y: of.rate, of }], looks[of.name][0],
      { pointStyle: looks[of.name][1], pointRadius: 6 }));
    sets.push(line("roof", roof, colour.ink));
    const x = axis("FLOP per byte", colour, { type: "logarithmic", min: from, max: to });
    const y = axis("GFLOP/s", colour, { type: "logarithmic" });
    return scatter(sets, x, y, colour, ({ name, intensity, rate, us, how }) =>
      [name, `${digits(rate)} GFLOP/s at ${digits(intensity)} FLOP/byte`, `${digits(us)} µs, ${how}`]);
  });
}

const seriesColours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];  // Okabe and Ito
const seriesShapes = ["circle", "rect", "triangle", "rectRot", "star", "cross"];

/** Problems that differ in their layout alone are one series, which is named by what tells it from the others. */
function seriesOf(problems) {
  const series = new Map();
  for (const problem of problems) {
    const { problem: fields, layout, n, environment } = problem;
    const name = { side: problem.side || "", operation: fields.operation, grid: `${layout.rows}x${layout.cols}`,
      block: fields.block, n: `n = ${n}`, dtype: fields.dtype, epilogue: fields.epilogue || "", device: environment.device,
      target: fields.target };
    const key = JSON.stringify(name);
    if (!series.has(key)) series.set(key, { name, problems: [] });
    series.get(key).problems.push(problem);
  }
  const all = [...series.values()];
  const telling = Object.keys(all[0].name).filter((field) => all.some(({ name }) => name[field] !== all[0].name[field]));
  return all.map(({ name, problems: some }) => ({ label: telling.map((field) => name[field]).join(", ") || "best kernel", problems: some }));
}

/** The best kernel against the dense product at the machine's peak, over sparsity. */
function sparsityPlot(problems) {
  const drawn = problems.filter((problem) => problem.speedup_over_dense !== null);
  if (drawn.length === 0) return null;
  const series = seriesOf(drawn);
  const factors = drawn.map((problem) => problem.speedup_over_dense);
  const wide = Math.max(...factors) > 8 * Math.min(...factors);
  const caption = "Speed-up over a dense product of the same shape that reaches the machine's peak, " +
    "in operations or in bandwidth, whichever takes longer. Real dense products do not.";
  return figure("sparsity", caption, (colour) => {
    const place = (of) => ({ x: 100 * (1 - of.layout.density), y: of.speedup_over_dense, of });
    const sets = series.map(({ label, problems: some }, at) => points(label, some.map(place).sort((a, b) => a.x - b.x),
      seriesColours[at % seriesColours.length],
      { showLine: true, borderWidth: 1, pointStyle: seriesShapes[Math.floor(at / seriesColours.length) % seriesShapes.length] }));
    sets.push(line("dense", [{ x: 0, y: 1 }, { x: 100, y: 1 }], colour.ink, { borderDash: [6, 4] }));
    const x = axis("sparsity, %", colour, { min: 0, max: 100 });
    const y = axis("times as fast as dense", colour, wide ? { type: "logarithmic" } : { beginAtZero: true });
    return scatter(sets, x, y, colour, (of) => [lines(of.title, 40), `${times(of.speedup_over_dense)} as fast as dense`,
      `${digits(median(of.best))} µs, ${source(of.best)}`].flat(), series.length <= 8);
  });
}
