// The queues of active plans: what waits in each, and who serves it.

import { html } from "../ui.js";
import { count, counted, span } from "../format.js";
import { Empty, Head, Loading, Panel, Problem, Table } from "../parts.js";
import { pulse } from "../overview.js";
import { to } from "../place.js";
import { useRead } from "../live.js";
import { useWatched } from "../store.js";

export function Queues() {
  const read = useRead("queues", { wake: useWatched(pulse), every: 5000, pause: 1500 });
  const items = read.data?.items ?? [];
  return html`<${Head} title="Queues" />
    <${Panel} title="Queues of active plans" flush>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && items.length === 0 && html`<${Empty} title="No queue has work, and no worker serves one.">A task names its queue: plan.add_task(fn, queue="gpu"). A worker serves it with zkplan worker --queue gpu.<//>`}
      ${items.length > 0 && html`<${Table} label="Queues" columns=${COLUMNS} rows=${items} keyOf=${(queue) => queue.name} />`}
    <//>`;
}

const COLUMNS = [
  { name: "name", title: "Queue", kind: "name", cell: (queue) => queue.name || "default" },
  { name: "runnable", title: "Runnable", number: true, cell: (queue) => count(queue.runnable) },
  { name: "running", title: "Running", number: true, cell: (queue) => count(queue.running) },
  { name: "waiting", title: "Later", number: true, wide: true, cell: (queue) => count(queue.waiting) },
  { name: "oldest", title: "Oldest waits for", number: true, wide: true, cell: (queue) => span(queue.oldest) },
  {
    name: "workers",
    title: "Workers",
    kind: "workers-cell",
    cell: (queue) =>
      queue.workers.length > 0
        ? html`<span class="narrow">${counted(queue.workers.length, "worker")}</span><span class="wide">${queue.workers.slice(0, 6).map((id, at) => html`${at > 0 && ", "}<a href=${to(["workers"], { worker: id })}>${id}</a>`)}${queue.workers.length > 6 && html` <span class="dim">and ${count(queue.workers.length - 6)} more</span>`}</span>`
        : html`<span class="state of-dead">no worker serves it</span>`,
  },
];
