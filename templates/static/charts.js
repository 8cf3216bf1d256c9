/* Draws the server's charts anew: one cursor over all of them, and a drag to look closer (a double click goes back).
   The server's own picture stays in the page and shows where this one cannot be drawn. */
(() => {
  "use strict";
  if (!window.uPlot) return;
  const drawn = new Map(); // slot id -> {plot, marks}
  const cursor = window.uPlot.sync("charts");
  const number = (v) => (v == null ? "\u2013" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : v.toFixed(3));
  const short = (v) => (Math.abs(v) >= 1e6 ? `${v / 1e6}M` : Math.abs(v) >= 1e4 ? `${v / 1e3}k` : String(Number(v.toPrecision(6))));

  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  const drawMarks = (plot, marks) => {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.font = `500 ${11 * ratio}px system-ui`;
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    const ends = [-1, -1, -1]; // where the last label of each of three rows ends: labels never cover each other
    for (const [at, text, tone] of marks) {
      if (at < plot.scales.x.min || at > plot.scales.x.max) continue;
      const x = Math.round(plot.valToPos(at, "x", true));
      ctx.strokeStyle = ctx.fillStyle = colour(`--${tone}`);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const flip = x > bbox.left + bbox.width * 0.8;
      ctx.textAlign = flip ? "right" : "left";
      const wide = ctx.measureText(text).width + 8 * ratio;
      const row = ends.findIndex((end) => end < (flip ? x - wide : x));
      if (row < 0) continue;
      ends[row] = flip ? x : x + wide;
      ctx.fillText(text, x + (flip ? -4 : 4) * ratio, bbox.top + (10 + 12 * row) * ratio);
    }
    ctx.restore();
  };

  const options = (figure, width, held) => {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const zero = figure.hasAttribute("data-zero");
    return {
      width,
      height: width < 420 ? 180 : 200,
      padding: [8, 10, 0, 0],
      cursor: { sync: { key: cursor.key }, y: false, drag: { x: true, y: false } },
      tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { y: { range: (_, low, high) => (low == null ? [0, 1] : window.uPlot.rangeNum(zero ? 0 : low, high, 0.08, true)) } },
      axes: [
        { ...axis, values: (_, at) => at.map((s) => new Date(s * 1000).toISOString().slice(11, 16)), space: 70, size: 26 },
        { ...axis, size: 48, values: (_, ticks) => ticks.map(short) },
      ],
      series: [
        { label: "UTC", value: (_, at) => (at == null ? "\u2013" : new Date(at * 1000).toISOString().slice(11, 19)) },
        { label: figure.dataset.chart, stroke: colour("--line"), width: 1.7, points: { show: false }, value: (_, v) => number(v) },
      ],
      hooks: { draw: [(plot) => drawMarks(plot, held.marks)] },
    };
  };

  const draw = (figure) => {
    const slot = figure.querySelector(".uplot-slot");
    const points = figure.querySelector("[data-points]");
    if (!slot || !points) return;
    const { data, marks } = JSON.parse(points.dataset.points);
    figure.classList.add("drawn");
    const held = drawn.get(slot.id);
    if (held && slot.contains(held.plot.root)) {
      const before = held.plot.data[0];
      const { min, max } = held.plot.scales.x;
      const closer = min > before[0] || max < before[before.length - 1];
      held.marks = marks;
      held.plot.setData(data, !closer);
      if (closer) held.plot.redraw();
      return;
    }
    const fresh = { marks, plot: null };
    fresh.plot = new window.uPlot(options(figure, slot.clientWidth, fresh), data, slot);
    drawn.set(slot.id, fresh);
  };

  const all = () => document.querySelectorAll("[data-chart]").forEach(draw);
  const anew = () => {
    drawn.forEach((held) => held.plot.destroy());
    drawn.clear();
    all();
  };
  document.addEventListener("htmx:after:swap", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(anew, 200);
  });
  all();
})();
