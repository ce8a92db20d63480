// What happened to a task, event by event: who took it, how long it ran, how it ended.

import { html, useEffect, useRef, useState } from "../ui.js";
import { NO_EVENTS, PAGE, SHOWN_MAX, withPage } from "../events.js";
import { count, dateTime, span } from "../format.js";
import { Empty, Loading, Panel, Problem, Table } from "../parts.js";
import { useRead } from "../live.js";

const BAD = ["dead", "failed", "attempt failed", "lost", "lapsed"];

/** `version` changes with every move of the task: its history is read on for that alone. */
export function TaskHistory({ plan, number, version }) {
  const [kept, setKept] = useState(NO_EVENTS);
  const read = useRead(`plans/${plan}/history`, { query: { task: number, limit: PAGE, cursor: kept.cursor }, wake: version, pause: 2500 });
  const page = read.isOld || read.data === kept.page ? null : read.data;
  const { events, isCut } = page ? withPage(kept, page) : kept;
  // A full page does not change any more: the next one is read behind it.
  useEffect(() => void (page?.next && setKept({ ...withPage(kept, page), page })), [page]);
  const isNone = read.error?.kind === "history-not-kept";
  const isWhole = useRef(false);
  isWhole.current ||= page !== null && page.next === null;
  return html`<${Panel} title="What happened" flush tools=${isCut && html`<span class="dim">its last ${count(SHOWN_MAX)} events, the latest first</span>`}>
    ${isNone && html`<${Empty} title="This plan keeps no history.">It was made without one, or by an older zkplan.<//>`}
    ${read.error && !isNone && html`<${Problem} error=${read.error} />`}
    ${!isWhole.current && !read.error && html`<${Loading} />`}
    ${isWhole.current && events.length === 0 && html`<${Empty} title="The history has nothing on it." />`}
    ${isWhole.current && events.length > 0 && html`<${Table} label="What happened to this task, the latest first" columns=${COLUMNS} rows=${events} keyOf=${(event) => `${event.position} ${event.kind}`} />`}
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
