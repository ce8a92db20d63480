// The graph of a plan, live: alike tasks in one box, which opens into its tasks.

import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { count, counted } from "../format.js";
import { Empty, Key, Loading, Panel, Problem } from "../parts.js";
import { DRAWN_MAX, Graph } from "../graph/draw.js";
import { warm } from "../graph/layout.js";
import { State } from "../states.js";
import { to } from "../place.js";
import { useRead } from "../live.js";

/** So many single tasks are asked for; of a larger plan the service makes groups. */
const SINGLE = 10_000;
const LISTED = 200;
/** To read a graph takes at most one part in so many of the time. */
const REST = 10;
const PAUSE_MS = 5000;
/** What needs somebody, or moves, stands first in lists. */
const FIRST = ["dead", "failed", "running", "left behind", "delayed", "runnable", "claimed ahead", "gated", "waiting"];
const rank = ({ state }) => (FIRST.indexOf(state) + 1 || FIRST.length + 1);

export function PlanGraph({ number, plan, model, stale, isLive }) {
  const [, setDrawn] = useState(0);
  const [chosen, setChosen] = useState(null);
  useEffect(warm, []);
  // To read the graph of a large plan is work for the ensemble: it is read anew only for what events
  // do not tell. It is read after the first event, so that no change between the two is missed.
  const read = useRead(isLive ? `plans/${number}/graph` : null, { query: { nodes: SINGLE }, wake: stale, pause: PAUSE_MS, rest: REST });
  const draw = () => setDrawn((old) => old + 1);
  useEffect(() => {
    if (!read.data) return;
    model.load(read.data, read.begun);
    draw();
  }, [read.data]);
  const picture = model.picture();
  const { nodes, edges, trail } = picture;
  const shown = nodes.find((node) => node.id === chosen);
  const go = (change) => {
    change();
    setChosen(null);
    draw();
  };
  const choose = (node) => {
    if (node.isOne) location.hash = to(["plans", number, "tasks", node.tasks[0].number]);
    else setChosen(chosen === node.id ? null : node.id);
  };
  const open = model.canOpen ? (node) => go(() => model.open(node.id)) : null;
  return html`<${Panel} title="Graph" flush tools=${html`<span class="dim">${said(picture, plan, read.data)}</span>`}>
      ${trail.length > 0 && html`<${Trail} titles=${trail} onClose=${(depth) => go(() => model.close(depth))} />`}
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && nodes.length === 0 && html`<${Empty} title=${plan.added ? "Every task has finished." : "This plan has no task yet."}>${plan.added ? html`The graph shows what is left. <a href=${to(["plans", number, "results"])}>Look at the results</a>` : "Tasks appear here as they are added."}<//>`}
      ${nodes.length > 0 && html`<${Graph} nodes=${nodes} edges=${edges} chosen=${chosen} onChoose=${choose} onOpen=${open} depth=${trail.join("\n")} />`}
    <//>
    ${shown && html`<${Box} key=${shown.id} node=${shown} number=${number} onClose=${() => setChosen(null)} onOpen=${open && !shown.isBeside ? () => open(shown) : null} />`}`;
}

function said({ nodes, edges, trail, more }, plan, data) {
  if (!data || nodes.length === 0) return "";
  const inside = nodes.filter((node) => !node.isBeside);
  const all = inside.reduce((sum, node) => sum + node.all, 0);
  const estimate = data.sampled ? ", numbers are estimates" : "";
  const before = trail.length === 0 && plan.added > all ? `; ${count(plan.added - all)} that had finished are not drawn` : "";
  const around = more ? `; ${count(more)} more around it` : "";
  const light = edges.length > DRAWN_MAX ? `, the heaviest of ${count(edges.length)} edges` : "";
  return `${counted(all, "task")} in ${count(inside.length)} ${inside.length === 1 ? "box" : "boxes"}${light}${around}${estimate}${before}`;
}

/** Where in the graph the reader is, and the way out. */
function Trail({ titles, onClose }) {
  return html`<nav class="trail" aria-label="Open boxes">
    <button class="button plain small" type="button" onClick=${() => onClose(0)}>Whole graph</button>
    ${titles.map((title, at) => html`<span aria-hidden="true">›</span>${at === titles.length - 1
      ? html`<b aria-current="true">${title}</b>`
      : html`<button class="button plain small" type="button" onClick=${() => onClose(at + 1)}>${title}</button>`}`)}
  </nav>`;
}

function Box({ node, number, onClose, onOpen }) {
  const frame = useRef(null);
  // It may lie below what is seen: who clicks a box sees what it did.
  useEffect(() => frame.current.scrollIntoView({ block: "nearest" }), []);
  const tasks = useMemo(() => [...node.tasks].sort((a, b) => rank(a) - rank(b) || a.number - b.number).slice(0, LISTED), [node]);
  const tools = html`
    ${onOpen && html`<button class="button small first" type="button" onClick=${onOpen}>Open in the graph</button>`}
    <button class="button small" type="button" onClick=${onClose}>Close</button>`;
  return html`<div class="below" ref=${frame}><${Panel} title=${node.title} tools=${tools}>
    <div class="pile">
      <${Key} counts=${node.counts} />
      <ul class="list columns">
        ${tasks.map((task) => html`<li key=${task.number}><a href=${to(["plans", number, "tasks", task.number])}>${task.name ?? `task ${task.number}`}</a><${State} state=${task.state} /></li>`)}
      </ul>
      ${node.all > tasks.length && html`<span class="dim">and ${count(node.all - tasks.length)} more: see <a href=${to(["plans", number, "tasks"])}>the tasks</a></span>`}
    </div>
  <//></div>`;
}
