// A chart of how many tasks have finished, with the forecast as a broken line.

import uPlot from "../vendor/uplot/uplot.js";
import { html, useEffect, useRef } from "./ui.js";
import { counted, dateTime, span } from "./format.js";

const HEIGHT = 240;
/** So many seconds lie between two ticks of the time: none is less than one. */
const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 43_200, 86_400];

/** `track`: [[time in s, finished]], `all` tasks, `end`: when the last one ends, or null. */
export function ProgressChart({ track, all, end }) {
  const frame = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(frame.current.clientWidth), dataOf(track, all, end), frame.current);
    };
    draw();
    const resized = new ResizeObserver(() => frame.current && plot.current?.setSize({ width: frame.current.clientWidth, height: HEIGHT }));
    resized.observe(frame.current);
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
  useEffect(() => plot.current?.setData(dataOf(track, all, end)));
  const [from, to] = [track[0], track.at(-1)];
  const told = `${counted(to[1] - from[1], "task")} finished in the last ${span(to[0] - from[0])}`;
  return html`<div class="chart" ref=${frame} role="img" aria-label=${told} />`;
}

function dataOf(track, all, end) {
  const times = track.map(([time]) => time);
  const done = track.map(([, finished]) => finished);
  const forecast = track.map((_, at) => (at === track.length - 1 && end ? done[at] : null));
  if (end && end > times.at(-1)) {
    times.push(end);
    done.push(null);
    forecast.push(all);
  }
  return [times, done, forecast];
}

function options(width) {
  // The colours of the scheme that is shown: a probe resolves light-dark().
  const probe = document.body.appendChild(document.createElement("i"));
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const [ink, line, finished, accent] = ["--ink-2", "--line", "--finished", "--accent"].map(colour);
  probe.remove();
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, low, high) => [Math.max(0, low - 1), Math.max(high, low + 1)] } },
    axes: [{ ...axis, incrs: STEPS, space: 80, values: (_, times) => times.map((time) => dateTime(time).slice(11)) }, { ...axis, size: 60 }],
    series: [
      {},
      { label: "finished", stroke: finished, width: 2, points: { show: false } },
      { label: "forecast", stroke: accent, width: 1.5, dash: [6, 5], spanGaps: true, points: { show: false } },
    ],
  };
}
