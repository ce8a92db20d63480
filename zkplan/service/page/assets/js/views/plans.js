// All plans: filtered, sorted, in pages; what is active is live.

import { html, useState } from "../ui.js";
import { ago, ahead, count, dateTime, passed, rate, span } from "../format.js";
import { Empty, Figures, Head, Loading, Pager, Panel, Problem, Progress, Table, Words } from "../parts.js";
import { overview, pulse, standsStill } from "../overview.js";
import { narrow, place, to } from "../place.js";
import { State } from "../states.js";
import { useRead } from "../live.js";
import { useWatched } from "../store.js";
import { Late } from "./late.js";

const STATES = ["running", "failed", "paused", "defining", "done", "cancelled"];
const ROWS = 50;

export function Plans() {
  const { query } = useWatched(place);
  const seen = useWatched(overview);
  const [cursors, setCursors] = useState([]);
  const asked = { name: query.get("name"), state: query.get("state"), sort: query.get("sort") ?? "-number" };
  const filter = (change) => {
    setCursors([]);
    narrow(change);
  };
  const pattern = asked.name && !/[*?[]/.test(asked.name) ? `*${asked.name}*` : asked.name;
  const read = useRead("plans", {
    query: { limit: ROWS, cursor: cursors.at(-1), ...asked, name: pattern },
    wake: useWatched(pulse),
    pause: 2000,
  });
  const rows = (read.data?.items ?? []).map((plan) => merged(plan, seen?.plans.get(plan.number)));
  const by = { name: asked.sort.replace("-", ""), down: asked.sort.startsWith("-") };
  const isAll = !asked.name && !asked.state && cursors.length === 0;
  return html`<${Head} title="Plans" />
    <${Sums} seen=${seen} />
    <${Late} />
    <${Panel} title=${asked.state ? `Plans that are ${asked.state}` : "All plans"} flush tools=${html`<${Filters} asked=${asked} onChange=${filter} />`}>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && rows.length === 0 && html`<${Nothing} isAll=${isAll} hasMore=${Boolean(read.data.next)} />`}
      ${rows.length > 0 && html`<${Table} label="Plans" columns=${COLUMNS} rows=${rows} keyOf=${(plan) => plan.number} by=${by} onSort=${(next) => filter({ sort: `${next.down ? "-" : ""}${next.name}` })} />`}
      ${(read.data?.next || cursors.length > 0) && html`<${Pager} said=${`Page ${cursors.length + 1}`} hasBefore=${cursors.length > 0} hasNext=${Boolean(read.data?.next)} onBefore=${() => setCursors(cursors.slice(0, -1))} onNext=${() => setCursors([...cursors, read.data.next])} />`}
    <//>`;
}

function Sums({ seen }) {
  const plans = seen ? [...seen.plans.values()] : [];
  const sum = (name) => plans.reduce((all, plan) => all + plan[name], 0);
  const running = sum("running");
  return html`<${Figures} of=${[
    ["Active plans", seen ? count(plans.length) : "–", seen && `of ${count(plans.length + seen.others)}`],
    ["Tasks left", seen ? count(sum("tasks")) : "–"],
    ["Running", seen ? count(running) : "–", seen && `of ${count(seen.slots)} slots`],
    ["Runnable", seen ? count(sum("runnable")) : "–"],
    ["Tasks a second", rate(seen?.rate)],
    ["Workers", seen ? html`<a href=${to(["workers"])}>${count(seen.workers)}</a>` : "–"],
    ["Dead", seen?.dead > 0 ? html`<a href=${to(["dead-letters"])}>${count(seen.dead)}</a>` : seen ? "0" : "–", "", seen?.dead > 0 ? "is-dead" : ""],
  ]} />`;
}

function Filters({ asked, onChange }) {
  return html`<div class="fields" role="search">
    <input type="search" aria-label="Filter by name" placeholder="Name, or a pattern: load-*" value=${asked.name ?? ""} onInput=${(event) => onChange({ name: event.target.value })} />
    <select aria-label="State" value=${asked.state ?? ""} onChange=${(event) => onChange({ state: event.target.value })}>
      <option value="">Any state</option>
      ${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}
    </select>
  </div>`;
}

function Nothing({ isAll, hasMore }) {
  if (isAll) return html`<${Empty} title="There is no plan yet." command="zkplan run FILE">Create one from Python, with POST /v1/plans, or from a file:<//>`;
  if (hasMore) return html`<${Empty} title="None on this page.">The next page may have some.<//>`;
  return html`<${Empty} title="No plan matches.">Change the filter above.<//>`;
}

/** What was read of a plan, with what the overview tells of it, which is newer. */
function merged(plan, now) {
  if (!now) return { ...plan, isStill: true };
  // An overview does not prove that a plan has failed: that is read.
  const state = now.state === "running" && plan.state === "failed" && now.dead === plan.dead ? plan.state : now.state;
  return { ...plan, ...now, state };
}

/** The counts of a plan for its bar, in which what waits stays empty where nothing is told of it. */
function countsOf(plan) {
  const [running, dead] = [plan.running ?? 0, plan.dead];
  if (plan.isStill) return { finished: plan.finished, running, dead };
  const runnable = plan.runnable ?? 0;
  return { finished: plan.finished, running, runnable, waiting: Math.max(0, plan.tasks - running - runnable - dead), dead };
}

/** How long a plan took, or when it ends if it goes on so; whether it stands still. */
function timeOf(plan) {
  if (plan.ended) return `took ${span(plan.ended - plan.created)}`;
  if (!plan.isStill && standsStill(plan)) return html`<a class="state of-delayed" href=${to(["plans", plan.number, "why"])}>nothing runs</a>`;
  return plan.isStill || plan.left === null ? "–" : `ends in ${ahead(plan.left)}`;
}

const COLUMNS = [
  { name: "number", title: "Plan", number: true, wide: true, sort: true, cell: (plan) => html`<a href=${to(["plans", plan.number])}>${plan.number}</a>` },
  { name: "name", title: "Name", kind: "name", sort: true, cell: (plan) => html`<a href=${to(["plans", plan.number])}><${Words} of=${plan.name || "(without a name)"} /></a>${!plan.readable && html` <span class="dim">not readable here</span>`}` },
  { name: "state", title: "State", cell: (plan) => html`<${State} state=${plan.state} />` },
  { name: "progress", title: "Progress", kind: "progress-cell", cell: (plan) => html`<${Progress} counts=${countsOf(plan)} done=${plan.finished} all=${plan.added} />` },
  { name: "left", title: "Left", number: true, wide: true, cell: (plan) => count(plan.tasks) },
  { name: "running", title: "Running", number: true, wide: true, cell: (plan) => (plan.isStill ? "–" : count(plan.running)) },
  { name: "runnable", title: "Runnable", number: true, wide: true, kind: "widest", cell: (plan) => count(plan.runnable) },
  { name: "dead", title: "Dead", number: true, cell: (plan) => (plan.dead ? html`<a class="state of-dead" href=${to(["plans", plan.number, "tasks"], { state: "dead" })}>${count(plan.dead)}</a>` : "0") },
  { name: "rate", title: "Tasks/s", number: true, wide: true, cell: (plan) => (plan.isStill ? "–" : rate(plan.rate)) },
  { name: "ends", title: "Time", number: true, wide: true, cell: timeOf },
  { name: "created", title: "Created", kind: "short dim", wide: true, cell: (plan) => html`<time title=${dateTime(plan.created)}>${ago(passed(plan.created))}</time>` },
];
