/* A job's curves: loaded whole, then appended whenever the job's topic changes. They append; they never animate or move.
   A point is [seq, fence, step, epoch, loss, val_loss, escapes, of NG, overkills, of OK]; null where it says nothing. */
(function () {
  "use strict";
  const root = document.querySelector("[data-curve]");
  if (!root || !window.uPlot) return;

  const SEQ = 0, FENCE = 1, STEP = 2, EPOCH = 3, LOSS = 4, VAL = 5, ESC = 6, NG = 7, OVER = 8, OK = 9;
  const state = { points: [], last: 0, steps: 0, epochs: 0, limit: null, busy: false, again: false };
  const plots = {};

  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const slot = (name) => root.querySelector(`[data-plot="${name}"]`);

  /* Epochs on every x axis: a step lies between the epochs that it belongs to. */
  function at(point) {
    if (point[VAL] !== null || point[ESC] !== null) return point[EPOCH];
    return state.steps && state.epochs ? (point[STEP] * state.epochs) / state.steps : point[EPOCH];
  }

  /* A new attempt goes on from its checkpoint: what the former one drew beyond that point did not count. */
  function take(points) {
    for (const point of points) {
      const former = state.points[state.points.length - 1];
      if (former && former[FENCE] !== point[FENCE]) {
        state.points = state.points.filter((old) => at(old) < at(point));
      }
      state.points.push(point);
      state.last = Math.max(state.last, point[SEQ]);
    }
  }

  function lossData() {
    const rows = state.points.filter((p) => p[LOSS] !== null || p[VAL] !== null).map((p) => [at(p), p[LOSS], p[VAL]]);
    rows.sort((a, b) => a[0] - b[0]);
    return [rows.map((r) => r[0]), rows.map((r) => r[1]), rows.map((r) => r[2])];
  }
  function epochData(n, of) {
    const rows = state.points.filter((p) => p[n] !== null && p[of]).map((p) => [p[EPOCH], p[n], p[of]]);
    return [rows.map((r) => r[0]), rows.map((r) => r[1]), rows.map((r) => r[2])];
  }
  function overkillData() {
    const [x, n, of] = epochData(OVER, OK);
    return [x, n.map((value, i) => (100 * value) / of[i])];
  }

  function axes(unit, whole) {
    const common = { stroke: token("--ink-3"), font: "11px " + token("--font"), ticks: { show: false } };
    return [
      { ...common, grid: { show: false }, size: 28, values: (u, marks) => marks.map((m) => (Number.isInteger(m) ? String(m) : "")) },
      { ...common, grid: { stroke: token("--rule"), width: 1 }, size: 44, space: 36,
        ...(whole ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] } : {}),
        values: (u, marks) => marks.map((m) => +m.toFixed(3) + unit) },
    ];
  }
  function options(name, series, unit, extra) {
    const box = slot(name);
    return {
      width: Math.max(box.clientWidth, 120), height: 150, legend: { show: false }, cursor: { show: false },
      padding: [18, 8, 0, 0], axes: axes(unit, extra && extra.whole), series: [{}, ...series],
      scales: {
        x: { time: false, range: () => [0, Math.max(state.epochs, 1) + (extra && extra.bars ? 0.6 : 0)] },
        y: { range: (u, low, high) => [0, top(high, extra && extra.whole)] },
      },
      hooks: extra && extra.draw ? { draw: [extra.draw] } : {},
    };
  }
  function top(high, whole) {
    if (!(high > 0)) return whole ? 4 : 1;
    return whole ? Math.max(4, Math.ceil(high * 1.15)) : high * 1.1;
  }

  /* The integer above each bar, and the line's limit in pictures: an escape is counted, not estimated. */
  function drawEscapes(u) {
    const ctx = u.ctx, ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.font = `600 ${11 * ratio}px ${token("--font")}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    ctx.fillStyle = token("--ink");
    u.data[0].forEach((x, i) => ctx.fillText(String(u.data[1][i]), u.valToPos(x, "x", true), u.valToPos(u.data[1][i], "y", true) - 4 * ratio));
    const of = u.data[0].length ? epochData(ESC, NG)[2][0] : 0;
    const limit = state.limit === null ? -1 : state.limit * of;
    if (limit > 0 && limit <= u.scales.y.max) {
      const y = u.valToPos(limit, "y", true);
      ctx.strokeStyle = token("--ng");
      ctx.setLineDash([2 * ratio, 2 * ratio]);
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, y);
      ctx.lineTo(u.bbox.left + u.bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }

  function build() {
    for (const name of Object.keys(plots)) { plots[name].destroy(); delete plots[name]; }
    const dots = (colour) => ({ show: true, size: 5, fill: colour, stroke: colour });
    const grey = token("--ink-2"), accent = token("--accent"), ink = token("--ink");
    plots.loss = new uPlot(options("loss", [
      { stroke: grey, width: 1, spanGaps: true, points: { show: false } },
      { stroke: accent, width: 2, spanGaps: true, points: dots(accent) },
    ], ""), lossData(), slot("loss"));
    plots.escapes = new uPlot(options("escapes", [
      { fill: token("--ng"), stroke: token("--ng"), width: 0, paths: uPlot.paths.bars({ size: [0.6, 18] }), points: { show: false } },
    ], "", { bars: true, whole: true, draw: drawEscapes }), epochData(ESC, NG).slice(0, 2), slot("escapes"));
    plots.overkills = new uPlot(options("overkills", [
      { stroke: ink, width: 1.5, points: dots(ink) },
    ], " %"), overkillData(), slot("overkills"));
  }

  function draw() {
    plots.loss.setData(lossData());
    plots.escapes.setData(epochData(ESC, NG).slice(0, 2));
    plots.overkills.setData(overkillData());
    root.dataset.points = String(state.points.length);
  }

  async function load() {
    if (state.busy) { state.again = true; return; }
    state.busy = true;
    try {
      const answer = await fetch(`${root.dataset.curve}?after=${state.last}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;  /* the strip says that the page is not live; the next change or check tries again */
      const body = await answer.json();
      Object.assign(state, { steps: body.steps, epochs: body.epochs, limit: body.limit });
      take(body.points);
      draw();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;  /* no connection: as above */
    } finally {
      state.busy = false;
      if (state.again) { state.again = false; load(); }
    }
  }

  build();
  load();
  root.addEventListener("loopline:changed", load);
  new MutationObserver(build).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  new ResizeObserver(() => {
    for (const [name, plot] of Object.entries(plots)) plot.setSize({ width: Math.max(slot(name).clientWidth, 120), height: 150 });
  }).observe(root);
})();
