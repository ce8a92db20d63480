// The unfinished tasks of a plan: filtered, in pages; the state of each shown one is live.

import { html, useEffect, useState } from "../ui.js";
import { act, mayDo } from "../api.js";
import { dateTime, passed, span } from "../format.js";
import { Ask, Empty, Loading, Pager, Panel, Problem, Table } from "../parts.js";
import { narrow, place, to } from "../place.js";
import { State, TASK_STATES, wordOf } from "../states.js";
import { useNow, useRead } from "../live.js";
import { useWatched } from "../store.js";

const ROWS = 100;

export function PlanTasks({ number, plan, tick, followers }) {
  const { query } = useWatched(place);
  const [cursors, setCursors] = useState([]);
  const [told, setTold] = useState(new Map());
  const asked = { state: query.get("state"), name: query.get("name"), queue: query.get("queue"), worker: query.get("worker") };
  const pattern = asked.name && !/[*?[]/.test(asked.name) ? `*${asked.name}*` : asked.name;
  const read = useRead(`plans/${number}/tasks`, {
    query: { limit: ROWS, cursor: cursors.at(-1), ...asked, name: pattern },
    wake: tick,
    pause: 2000,
  });
  useEffect(() => {
    const follow = (facts) => setTold((old) => new Map([...(facts.whole ? [] : old), ...facts.tasks.map((task) => [task.number, { state: task.state, since: Date.now() / 1000 }])]));
    followers.add(follow);
    return () => followers.delete(follow);
  }, []);
  // What was read later than it was told is truer: each read begins with nothing told.
  useEffect(() => setTold(new Map()), [read.data]);
  const filter = (change) => {
    setCursors([]);
    narrow(change);
  };
  const now = useNow();
  const rows = (read.data?.items ?? []).map((task) => ({ ...moved(task, told.get(task.number)), now }));
  const isAll = !Object.values(asked).some(Boolean) && cursors.length === 0;
  return html`<${Panel} title="Unfinished tasks" flush tools=${html`<${Filters} asked=${asked} onChange=${filter} />`}>
    ${read.error && html`<${Problem} error=${read.error} />`}
    ${!read.data && !read.error && html`<${Loading} />`}
    ${read.data && rows.length === 0 && html`<${Nothing} isAll=${isAll} number=${number} plan=${plan} hasMore=${Boolean(read.data.next)} />`}
    ${rows.length > 0 && html`<${Table} label="Unfinished tasks" columns=${COLUMNS} rows=${rows} keyOf=${(task) => task.number} />`}
    ${(read.data?.next || cursors.length > 0) && html`<${Pager} said=${`Page ${cursors.length + 1}, the oldest tasks first`} hasBefore=${cursors.length > 0} hasNext=${Boolean(read.data?.next)} onBefore=${() => setCursors(cursors.slice(0, -1))} onNext=${() => setCursors([...cursors, read.data.next])} />`}
  <//>`;
}

/** A task as it was read, or as it was told since: then it is not known yet who has it. */
const moved = (task, told) => (told && told.state !== task.state ? { ...task, ...told, worker: "", error: "", due: null } : task);

function Filters({ asked, onChange }) {
  return html`<div class="fields" role="search">
    <input type="search" aria-label="Filter by name" placeholder="Name, or a pattern: load-*" value=${asked.name ?? ""} onInput=${(event) => onChange({ name: event.target.value })} />
    <select aria-label="State" value=${asked.state ?? ""} onChange=${(event) => onChange({ state: event.target.value })}>
      <option value="">Any state</option>
      ${TASK_STATES.map((state) => html`<option key=${state} value=${state}>${wordOf(state)}</option>`)}
    </select>
    ${asked.worker && html`<button class="button small" type="button" onClick=${() => onChange({ worker: "" })}>of ${asked.worker} ×</button>`}
    ${asked.queue && html`<button class="button small" type="button" onClick=${() => onChange({ queue: "" })}>queue ${asked.queue} ×</button>`}
  </div>`;
}

function Nothing({ isAll, number, plan, hasMore }) {
  if (!isAll) return html`<${Empty} title="No unfinished task matches.">${hasMore ? "The next page may have some." : "Change the filter above."}<//>`;
  if (!plan.added) return html`<${Empty} title="This plan has no task yet.">Add some with plan.add_task, or with POST /v1/plans/${number}/tasks.<//>`;
  return html`<${Empty} title="Every task has finished."><a href=${to(["plans", number, "results"])}>Look at the results</a><//>`;
}

/** What can be done with one dead task, in lists of them. */
export function DeadActions({ task, again }) {
  if (task.state !== "dead" || !mayDo("operate")) return null;
  const path = `plans/${task.plan}/tasks/${task.number}`;
  const go = (name, said) => async () => {
    await act(`${path}/${name}`);
    again?.();
    return said;
  };
  const named = `task ${task.number}`;
  return html`<div class="actions">
    <${Ask} small label="Retry" describedBy=${named} title=${`Retry ${named}?`} text=${`${task.name ?? named} will be runnable again, with all its attempts.`} act=${go("retry", `Task ${task.number} is runnable again.`)} />
    <${Ask} small danger label="Skip" describedBy=${named} title=${`Skip ${named}?`} text="It will not run any more. Tasks that take its result get null instead. This cannot be undone." act=${go("skip", `Task ${task.number} is skipped.`)} />
  </div>`;
}

const link = (task, text) => html`<a href=${to(["plans", task.plan, "tasks", task.number])}>${text}</a>`;

const COLUMNS = [
  { name: "number", title: "Task", number: true, wide: true, cell: (task) => link(task, task.number) },
  { name: "name", title: "Name", kind: "name", cell: (task) => html`${link(task, task.name ?? "(not readable here)")}<span class="narrow under dim">${task.error}</span>` },
  { name: "state", title: "State", kind: "state-cell", cell: (task) => html`<${State} state=${task.state} />` },
  { name: "since", title: "For", number: true, cell: (task) => html`<time title=${dateTime(task.since)}>${span(passed(task.since, task.now))}</time>` },
  { name: "attempts", title: "Tries", number: true, wide: true, cell: (task) => task.attempts },
  { name: "worker", title: "Worker", kind: "short dim", wide: true, cell: (task) => task.worker || "–" },
  { name: "queue", title: "Queue", kind: "short dim widest", wide: true, cell: (task) => task.queue || "default" },
  { name: "error", title: "Last error, or what is next", kind: "line dim", wide: true, cell: (task) => html`<span title=${task.error}>${task.error || (task.due ? `runnable ${dateTime(task.due)}` : "")}</span>` },
];
