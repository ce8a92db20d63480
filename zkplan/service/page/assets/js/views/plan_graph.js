// The graph of a plan, live: alike tasks in one box, which opens into its tasks.

import { html, useEffect, useState } from "../ui.js";
import { count, counted } from "../format.js";
import { Empty, Key, Loading, Panel, Problem } from "../parts.js";
import { Graph } from "../graph/draw.js";
import { GraphModel } from "../graph/model.js";
import { State } from "../states.js";
import { to } from "../place.js";
import { useRead } from "../live.js";

/** So many single tasks are asked for; of a larger plan the service makes groups. */
const SINGLE = 1000;
const LISTED = 200;

export function PlanGraph({ number, plan, model, stale, isLive }) {
  const [, setDrawn] = useState(0);
  const [open, setOpen] = useState(null);
  // To read the graph of a large plan is work for the ensemble: it is read anew only for what events
  // do not tell. It is read after the first event, so that no change between the two is missed.
  const read = useRead(isLive ? `plans/${number}/graph` : null, { query: { nodes: SINGLE }, wake: stale, pause: 5000 });
  const draw = () => setDrawn((old) => old + 1);
  useEffect(() => {
    if (!read.data) return;
    model.load(read.data, read.begun);
    draw();
  }, [read.data]);
  const { nodes, edges } = model.picture();
  const shown = nodes.find((node) => node.id === open);
  const act = (node) => {
    if (node.isOne) location.hash = to(["plans", number, "tasks", node.numbers[0]]);
    else setOpen(open === node.id ? null : node.id);
  };
  const tools = html`<span class="dim">${said(nodes, plan, read.data)}</span>
    ${model.canClose && html`<button class="button small" type="button" onClick=${() => { model.closeAll(); draw(); }}>Group again</button>`}`;
  return html`<${Panel} title="Graph" flush tools=${tools}>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && nodes.length === 0 && html`<${Empty} title=${plan.added ? "Every task has finished." : "This plan has no task yet."}>${plan.added ? html`The graph shows what is left. <a href=${to(["plans", number, "results"])}>Look at the results</a>` : "Tasks appear here as they are added."}<//>`}
      ${nodes.length > 0 && html`<${Graph} nodes=${nodes} edges=${edges} open=${open} onOpen=${act} />`}
    <//>
    ${shown && html`<${Group} node=${shown} number=${number} onClose=${() => setOpen(null)} onExpand=${model.canExpand(shown.id) ? () => { model.expand(shown.id); setOpen(null); draw(); } : null} />`}`;
}

function said(nodes, plan, data) {
  if (!data || nodes.length === 0) return "";
  const all = nodes.reduce((sum, node) => sum + node.all, 0);
  const estimate = data.sampled ? ", numbers are estimates" : "";
  const before = plan.added > all ? `; ${count(plan.added - all)} had finished before` : "";
  return `${counted(all, "task")} in ${count(nodes.length)} boxes${estimate}${before}`;
}

function Group({ node, number, onClose, onExpand }) {
  const tools = html`
    ${onExpand && html`<button class="button small" type="button" onClick=${onExpand}>Draw its tasks</button>`}
    <button class="button small" type="button" onClick=${onClose}>Close</button>`;
  return html`<${Panel} title=${node.title} tools=${tools}>
    <div class="pile">
      <${Key} counts=${node.counts} />
      <ul class="list columns">
        ${node.tasks.slice(0, LISTED).map((task) => html`<li key=${task.number}><a href=${to(["plans", number, "tasks", task.number])}>${task.name ?? `task ${task.number}`}</a><${State} state=${task.state} /></li>`)}
      </ul>
      ${node.all > Math.min(LISTED, node.tasks.length) && html`<span class="dim">and ${count(node.all - Math.min(LISTED, node.tasks.length))} more: see <a href=${to(["plans", number, "tasks"])}>the tasks</a></span>`}
    </div>
  <//>`;
}
