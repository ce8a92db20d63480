// A chart of how many tasks have finished: before it was opened, since then, and as it goes on.

import uPlot from "../vendor/uplot/uplot.js";
import { html, useEffect, useRef } from "./ui.js";
import { counted, dateTime, span } from "./format.js";

const HEIGHT = 240;
const DAY = 86_400;
/** So many seconds lie between two ticks of the time: none is less than one. */
const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 2_592_000, 7_776_000];

/** `track`: [[time in s, finished]], `from`: when none had finished, `all` tasks, `end`: when the last one ends, or null. */
export function ProgressChart({ track, from, all, end }) {
  const frame = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const element = frame.current; // what is called below may come after the chart has left the page
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element.clientWidth), dataOf(track, from, all, end), element);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    // A canvas knows nothing of colours that change: it is drawn anew.
    const scheme = new MutationObserver(draw);
    scheme.observe(document.documentElement, { attributeFilter: ["data-scheme"] });
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      scheme.disconnect();
      system.removeEventListener("change", draw);
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(dataOf(track, from, all, end)));
  const [first, last] = [track[0], track.at(-1)];
  const told = `${counted(last[1] - first[1], "task")} finished in the last ${span(last[0] - first[0])}`;
  return html`<div class="chart" ref=${frame} role="img" aria-label=${told} />
    <ul class="key">
      <li><i class="stroke of-finished"></i> finished</li>
      <li><i class="stroke of-waiting is-dotted"></i> the average before this page was opened</li>
      ${end && html`<li><i class="stroke of-running is-broken"></i> forecast</li>`}
    </ul>`;
}

function dataOf(track, from, all, end) {
  const isLate = track[0][0] > from;
  const times = [...(isLate ? [from] : []), ...track.map(([time]) => time)];
  const done = [...(isLate ? [null] : []), ...track.map(([, finished]) => finished)];
  const before = times.map((_, at) => (at === 0 ? 0 : at === 1 ? track[0][1] : null));
  const forecast = times.map((_, at) => (at === times.length - 1 && end ? done[at] : null));
  if (end && end > times.at(-1)) {
    times.push(end);
    done.push(null);
    before.push(null);
    forecast.push(all);
  }
  return [times, done, isLate ? before : before.fill(null), forecast];
}

function options(width) {
  // The colours of the scheme that is shown: a probe resolves light-dark().
  const probe = document.body.appendChild(document.createElement("i"));
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const [ink, line, finished, waiting, running] = ["--ink-2", "--line", "--finished", "--waiting", "--running"].map(colour);
  probe.remove();
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, __, high) => [0, Math.max(high, 1)] } },
    axes: [{ ...axis, incrs: STEPS, space: 80, values: (_, times) => times.map((time) => dateTime(time).slice(...(times.at(-1) - times[0] < DAY ? [11] : [5, 16]))) }, { ...axis, size: 60 }],
    series: [
      {},
      { label: "finished", stroke: finished, width: 2, points: { show: false } },
      { label: "average before", stroke: waiting, width: 1.5, dash: [2, 4], points: { show: false } },
      { label: "forecast", stroke: running, width: 1.5, dash: [6, 5], spanGaps: true, points: { show: false } },
    ],
  };
}
