// The time line of a plan: who ran what when, what it waited for, and the critical path.

import { html } from "../ui.js";
import { count, counted, dateTime, passed, span } from "../format.js";
import { Empty, Loading, Panel, Problem } from "../parts.js";
import { to } from "../place.js";
import { useNow, useRead } from "../live.js";
import { wordOf } from "../states.js";
import { endOf, pieces } from "../timeline.js";

/** Many names differ at their ends alone: so much of the beginning is shown. */
const LABEL = 60;

export function PlanTimeline({ number, tick, isOver }) {
  const read = useRead(`plans/${number}/timeline`, { wake: tick, pause: 2500 });
  const told = read.data;
  const isNone = read.error?.kind === "history-not-kept";
  return html`<${Panel} title="Time line">
    ${isNone && html`<${Empty} title="This plan keeps no history.">It was made without one, or by an older zkplan.<//>`}
    ${read.error && !isNone && html`<${Problem} error=${read.error} />`}
    ${!told && !read.error && html`<${Loading} />`}
    ${told && told.rows.length === 0 && html`<${Empty} title="Nothing has run yet.">Each attempt is drawn here once it is claimed.<//>`}
    ${told && told.rows.length > 0 && html`<${Lines} plan=${number} told=${told} isOver=${isOver} />`}
    ${(told?.missing ?? []).map((each) => html`<p key=${each} class="dim">The history is not whole: ${each}.</p>`)}
  <//>`;
}

function Lines({ plan, told, isOver }) {
  const isSingle = told.rows[0].number !== null;
  const now = useNow() / 1000;
  const last = isOver ? told.last : endOf(told, now);
  const whole = Math.max(0.001, last - told.first);
  const percent = (moment) => (100 * Math.min(whole, Math.max(0, moment - told.first))) / whole;
  return html`<div class="pile">
    <div class="timeline" role="list" aria-label="Tasks over time">
      ${told.rows.map((row) => html`<${Line} key=${row.number ?? row.name} plan=${plan} row=${row} percent=${percent} last=${last} />`)}
      <div class="line axis" aria-hidden="true"><span></span><span class="ends"><i>${dateTime(told.first)}</i><i>${span(whole)} later</i></span><span></span></div>
    </div>
    ${told.others > 0 && html`<p class="dim">and ${counted(told.others, "task")} of other names</p>`}
    <ul class="key">
      ${isSingle && html`<li><i class="piece of-runnable"></i> runnable</li><li><i class="piece of-claimed-ahead"></i> claimed, not started</li>`}
      <li><i class="piece of-running"></i> ${isSingle ? "running" : "how many run"}</li>
      ${isSingle && told.rows.some((row) => row.error || row.earlier.length > 0) && html`<li><i class="piece of-dead"></i> failed</li>`}
      ${told.rows.some((row) => row.critical) && html`<li>★ on the critical path</li>`}
    </ul>
    ${told.path_tasks > 1 && html`<${Path} plan=${plan} told=${told} />`}
  </div>`;
}

function Line({ plan, row, percent, last }) {
  const name = row.name.slice(0, LABEL) || (row.number === null ? "(without a name)" : `task ${row.number}`);
  const outcome = row.number === null ? `${counted(row.count, "task")}, ${span(row.ran)} of work` : [row.ran === null ? "" : span(row.ran), row.error].filter(Boolean).join(" ") || stateFor(row);
  const said = `${name}: ${outcome}${row.worker ? `, by ${row.worker}` : ""}${row.earlier.length > 0 ? `, after ${counted(row.earlier.length, "attempt")} before` : ""}${row.critical ? ", on the critical path" : ""}`;
  return html`<div class="line" role="listitem" aria-label=${said} title=${said}>
    <span class="name">${row.critical ? "★ " : ""}${row.number === null ? name : html`<a href=${to(["plans", plan, "tasks", row.number])}>${name}</a>`}</span>
    <span class="time">${row.number === null ? html`<${Density} running=${row.running} />` : pieces(row, last).map(([state, from, until]) => html`<i key=${`${state} ${from}`} class=${`piece of-${state}`} style=${{ left: `${percent(from)}%`, width: `${Math.max(0.3, percent(until) - percent(from))}%` }} />`)}</span>
    <span class="told">${outcome}</span>
  </div>`;
}

/** "running for 3 min 2 s". */
const stateFor = (row) => `${wordOf(row.state)}${row.state !== "running" || row.claimed === null ? "" : ` for ${span(passed(row.started ?? row.claimed))}`}`;

function Density({ running }) {
  const most = Math.max(1, ...running);
  const bars = running.map((each, at) => (each ? `M${at} ${20}V${20 - (20 * each) / most}h1V20z` : "")).join("");
  return html`<svg class="of-running" viewBox=${`0 0 ${running.length} 20`} preserveAspectRatio="none" aria-hidden="true"><path d=${bars} fill="var(--of)" /></svg>`;
}

function Path({ plan, told }) {
  const ran = told.path.reduce((sum, each) => sum + (each.ran ?? 0), 0);
  return html`<section><h3>Critical path</h3>
    <p>The end waited ${span(told.path_seconds)} for ${counted(told.path_tasks, "task")}, one behind the other. ${told.path.length < told.path_tasks ? `The longest ${count(told.path.length)}` : "They"} ran ${span(ran)} of that.</p>
    <ol class="path">${told.path.map((each) => html`<li key=${each.number}><a href=${to(["plans", plan, "tasks", each.number])}>${each.name.slice(0, LABEL) || `task ${each.number}`}</a> <span class="dim">ran ${span(each.ran)}</span></li>`)}</ol>
  </section>`;
}
