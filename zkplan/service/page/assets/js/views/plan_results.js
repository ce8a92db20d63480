// What finished tasks have left: results, failures, skipped ones. Values only where asked for.

import { html, useState } from "../ui.js";
import { count, dateTime } from "../format.js";
import { Empty, Loading, Pager, Panel, Problem, Table } from "../parts.js";
import { State } from "../states.js";
import { to } from "../place.js";
import { useRead } from "../live.js";

const ROWS = 100;

export function PlanResults({ number, tick }) {
  const [cursors, setCursors] = useState([]);
  const read = useRead(`plans/${number}/results`, { query: { limit: ROWS, cursor: cursors.at(-1) }, wake: tick, pause: 2500 });
  const rows = (read.data?.items ?? []).map((each) => ({ ...each, plan: number }));
  return html`<${Panel} title="Kept results" flush>
    ${read.error && html`<${Problem} error=${read.error} />`}
    ${!read.data && !read.error && html`<${Loading} />`}
    ${read.data && rows.length === 0 && html`<${Empty} title="No result is kept.">A result that only other tasks take is not kept. Add a task with keep=True to keep it.<//>`}
    ${rows.length > 0 && html`<${Table} label="Kept results" columns=${COLUMNS} rows=${rows} keyOf=${(each) => each.number} />`}
    ${(read.data?.next || cursors.length > 0) && html`<${Pager} said=${`Page ${cursors.length + 1}, by number`} hasBefore=${cursors.length > 0} hasNext=${Boolean(read.data?.next)} onBefore=${() => setCursors(cursors.slice(0, -1))} onNext=${() => setCursors([...cursors, read.data.next])} />`}
  <//>`;
}

const STATES = { result: "finished", failure: "failed", skipped: "skipped" };
const link = (each, text) => html`<a href=${to(["plans", each.plan, "tasks", each.number])}>${text}</a>`;

const COLUMNS = [
  { name: "number", title: "Task", number: true, cell: (each) => link(each, each.number) },
  { name: "name", title: "Name", kind: "name", cell: (each) => link(each, each.name || "(without a name)") },
  { name: "kind", title: "Outcome", cell: (each) => html`<${State} state=${STATES[each.kind] ?? each.kind} word=${each.kind} />` },
  { name: "size", title: "Bytes", number: true, cell: (each) => count(each.size) },
  { name: "when", title: "Kept", kind: "short dim", wide: true, cell: (each) => dateTime(each.when) },
];
