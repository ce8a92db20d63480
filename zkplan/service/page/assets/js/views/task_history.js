// What happened to a task, event by event: who took it, how long it ran, how it ended.

import { html } from "../ui.js";
import { count, dateTime, span } from "../format.js";
import { Empty, Loading, Panel, Problem, Table } from "../parts.js";
import { useRead } from "../live.js";

const ROWS = 200;
const BAD = ["dead", "failed", "attempt failed", "lost", "lapsed"];

/** `version` changes with every move of the task: its history is read anew for that alone. */
export function TaskHistory({ plan, number, version }) {
  const read = useRead(`plans/${plan}/history`, { query: { task: number, limit: ROWS }, wake: version, pause: 2500 });
  const isNone = read.error?.status === 409;
  const rows = [...(read.data?.items ?? [])].map((event, at) => ({ ...event, at })).reverse();
  return html`<${Panel} title="What happened" flush tools=${read.data?.next && html`<span class="dim">its first ${count(ROWS)} events</span>`}>
    ${isNone && html`<${Empty} title="This plan keeps no history.">It was made without one, or by an older zkplan.<//>`}
    ${read.error && !isNone && html`<${Problem} error=${read.error} />`}
    ${!read.data && !read.error && html`<${Loading} />`}
    ${read.data && rows.length === 0 && html`<${Empty} title="Its history tells nothing of it." />`}
    ${rows.length > 0 && html`<${Table} label="What happened to this task, the latest first" columns=${COLUMNS} rows=${rows} keyOf=${(event) => event.at} />`}
    ${(read.data?.missing ?? []).map((each) => html`<p key=${each} class="more">The history is not whole: ${each}.</p>`)}
  <//>`;
}

const COLUMNS = [
  { name: "when", title: "When", kind: "short dim", cell: (event) => dateTime(event.when) },
  { name: "kind", title: "What", kind: "short", cell: (event) => (BAD.includes(event.kind) ? html`<b class="state of-dead">${event.kind}</b>` : event.kind) },
  { name: "ran", title: "Ran", number: true, cell: (event) => (event.seconds === null ? "" : span(event.seconds)) },
  { name: "by", title: "By", kind: "short dim", wide: true, cell: (event) => event.by },
  { name: "detail", title: "More", kind: "dim", wide: true, cell: (event) => [event.error, event.detail].filter(Boolean).join(", ") },
];
