// The dead tasks of all plans, to be retried or skipped.

import { html, useState } from "../ui.js";
import { act, ask, mayDo } from "../api.js";
import { count, counted, passed, span, dateTime } from "../format.js";
import { Ask, Empty, Head, Loading, Pager, Panel, Problem, Table } from "../parts.js";
import { DeadActions } from "./plan_tasks.js";
import { narrow, place, to } from "../place.js";
import { pulse } from "../overview.js";
import { useNow, useRead } from "../live.js";
import { useWatched } from "../store.js";

const ROWS = 100;

export function DeadLetters() {
  const { query } = useWatched(place);
  const [cursors, setCursors] = useState([]);
  const asked = { name: query.get("name"), error: query.get("error") };
  const read = useRead("dead-letters", { query: { limit: ROWS, cursor: cursors.at(-1), ...asked }, wake: useWatched(pulse), every: 15000, pause: 2000 });
  const now = useNow();
  const rows = (read.data?.items ?? []).map((task) => ({ ...task, now }));
  const isAll = !asked.name && !asked.error && cursors.length === 0;
  const filter = (change) => {
    setCursors([]);
    narrow(change);
  };
  const columns = [...COLUMNS, { name: "actions", title: "", cell: (task) => html`<${DeadActions} task=${task} again=${read.again} />` }];
  return html`<${Head} title="Dead letters" below="Tasks that are out of attempts, in all plans that hold their failures." />
    <${Panel} title="Dead tasks" flush tools=${html`<div class="fields" role="search">
      <input type="search" aria-label="Filter by name" placeholder="Name: load-*" value=${asked.name ?? ""} onInput=${(event) => filter({ name: event.target.value })} />
      <input type="search" aria-label="Filter by type of error" placeholder="Error: *TimeoutError" value=${asked.error ?? ""} onInput=${(event) => filter({ error: event.target.value })} />
    </div>`}>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && rows.length === 0 && (isAll ? html`<${Empty} title="No task is dead.">A task that has used up its attempts comes here, and waits for somebody to retry or skip it.<//>` : html`<${Empty} title="No dead task matches.">Change the filter above.<//>`)}
      ${rows.length > 0 && html`<${Table} label="Dead tasks" columns=${columns} rows=${rows} keyOf=${(task) => `${task.plan} ${task.number}`} />`}
      ${rows.length > 0 && mayDo("operate") && html`<${AllActions} rows=${rows} again=${read.again} />`}
      ${(read.data?.next || cursors.length > 0) && html`<${Pager} said=${`Page ${cursors.length + 1}`} hasBefore=${cursors.length > 0} hasNext=${Boolean(read.data?.next)} onBefore=${() => setCursors(cursors.slice(0, -1))} onNext=${() => setCursors([...cursors, read.data.next])} />`}
    <//>`;
}

/** What can be done with all tasks that are shown: those that are there when the question is asked. */
function AllActions({ rows, again }) {
  const [chosen, setChosen] = useState(rows);
  const all = counted(chosen.length, "task");
  const go = (name, said) => async () => {
    const refused = [];
    let changed = 0;
    for (const task of chosen) {
      const path = `plans/${task.plan}/tasks/${task.number}`;
      try {
        // Somebody may have retried it since, and it may run.
        if ((await ask("GET", path)).state === "dead" && (await act(`${path}/${name}`)).changed) changed += 1;
      } catch (error) {
        if (!(error.status >= 400 && error.status < 500)) throw error;
        refused.push(`Task ${task.number} of plan ${task.plan}: ${error.title}`);
      }
    }
    again();
    const told = `${count(changed)} of ${all} ${changed === 1 ? "is" : "are"} ${said}.`;
    if (refused.length > 0) throw { title: told, detail: refused.join(" ") };
    return told;
  };
  const open = () => setChosen(rows);
  return html`<div class="more"><span>${counted(rows.length, "task")} shown</span><span class="actions">
    <${Ask} small label="Retry all shown" onOpen=${open} title=${`Retry ${all}?`} text="They will be runnable again, with all their attempts." act=${go("retry", "runnable again")} />
    <${Ask} small danger label="Skip all shown" onOpen=${open} title=${`Skip ${all}?`} text="None of them will run any more. Tasks that take their results get null instead. This cannot be undone." act=${go("skip", "skipped")} />
  </span></div>`;
}

const COLUMNS = [
  { name: "plan", title: "Plan", kind: "line plan-cell", wide: true, cell: (task) => html`<a title=${task.plan_name} href=${to(["plans", task.plan])}>${task.plan_name || `Plan ${task.plan}`}</a>` },
  { name: "task", title: "Task", kind: "name", cell: (task) => html`<a href=${to(["plans", task.plan, "tasks", task.number])}>${task.name ?? `task ${task.number}`}</a><span class="narrow under dim">${task.error}</span>` },
  { name: "error", title: "Last error", kind: "line", wide: true, cell: (task) => html`<span title=${task.error}>${task.error}</span>` },
  { name: "attempts", title: "Tries", number: true, wide: true, cell: (task) => task.attempts },
  { name: "since", title: "Dead for", number: true, wide: true, cell: (task) => html`<time title=${dateTime(task.since)}>${span(passed(task.since, task.now))}</time>` },
];
