// The living workers: what each is, and what it runs since when.

import { html, useState } from "../ui.js";
import { act, mayDo } from "../api.js";
import { counted, dateTime, passed, span } from "../format.js";
import { Ask, Bar, Empty, Head, Loading, Panel, Problem, Table } from "../parts.js";
import { narrow, place, to } from "../place.js";
import { pulse } from "../overview.js";
import { State } from "../states.js";
import { useNow, useRead } from "../live.js";
import { useWatched } from "../store.js";

export function Workers() {
  const wake = useWatched(pulse);
  const { query } = useWatched(place);
  const read = useRead("workers", { wake, every: 5000, pause: 1500 });
  const now = useNow();
  const items = (read.data?.items ?? []).map((worker) => ({ ...worker, now }));
  const open = query.get("worker");
  const is = items.find((each) => each.id === open);
  const columns = [...COLUMNS, ...(mayDo("operate") ? [{ name: "actions", title: "", cell: (worker) => html`<${Orders} worker=${worker} again=${read.again} />` }] : [])];
  return html`<${Head} title="Workers" below=${read.data && `${counted(items.length, "worker")}, ${counted(items.reduce((sum, each) => sum + each.slots, 0), "slot")}`} />
    <${Panel} title="Living workers" flush>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && items.length === 0 && html`<${Empty} title="No worker runs." command="zkplan worker">Tasks without a kind need a worker. Start one, with the same root and key:<//>`}
      ${items.length > 0 && html`<${Table} label="Workers" columns=${columns} rows=${items} keyOf=${(worker) => worker.id} />`}
    <//>
    ${is && html`<${Held} key=${open} worker=${open} wake=${wake} />`}`;
}

function Held({ worker, wake }) {
  const read = useRead(`workers/${encodeURIComponent(worker)}`, { wake, every: 2000, pause: 1000 });
  const now = useNow();
  const rows = (read.data?.held ?? []).map((each) => ({ ...each, now }));
  return html`<${Panel} title=${`What ${worker} holds`} flush tools=${html`<button class="button small" type="button" onClick=${() => narrow({ worker: "" })}>Close</button>`}>
    ${read.error && html`<${Problem} error=${read.error} />`}
    ${!read.data && !read.error && html`<${Loading} />`}
    ${read.data && rows.length === 0 && html`<${Empty} title="It holds no task just now." />`}
    ${rows.length > 0 && html`<${Table} label="Tasks that it holds" columns=${HELD} rows=${rows} keyOf=${(each) => `${each.plan} ${each.number}`} />`}
  <//>`;
}

function Orders({ worker, again }) {
  const path = `workers/${encodeURIComponent(worker.id)}`;
  const go = (name, said) => async () => {
    await act(`${path}/${name}`);
    again();
    return said;
  };
  return html`<div class="actions">
    ${worker.state === "running" && html`<${Ask} small label="Pause" describedBy=${worker.id} title="Pause this worker?" text=${`${worker.id} claims nothing more until it is resumed.`} act=${go("pause", "The worker hears of it within seconds.")} />`}
    ${worker.state === "paused" && html`<${Ask} small label="Resume" describedBy=${worker.id} title="Resume this worker?" text=${`${worker.id} claims tasks again.`} act=${go("resume", "The worker hears of it within seconds.")} />`}
    ${worker.state !== "draining" && html`<${Ask} small danger label="Drain" describedBy=${worker.id} title="Drain this worker?" text=${`${worker.id} finishes what runs, hands back the rest, and ends.`} act=${go("drain", "The worker ends when its tasks have.")} />`}
  </div>`;
}

const COLUMNS = [
  { name: "id", title: "Worker", kind: "short", cell: (worker) => html`<a href=${to(["workers"], { worker: worker.id })}>${worker.id}</a>` },
  { name: "state", title: "State", cell: (worker) => html`<${State} state=${worker.state} />` },
  { name: "claims", title: "Slots in use", kind: "progress-cell", cell: (worker) => html`<a class="progress" title="What it runs" href=${to(["workers"], { worker: worker.id })}><${Bar} counts=${{ running: worker.claims }} all=${Math.max(worker.slots, worker.claims)} label=${`${worker.claims} of ${worker.slots} slots in use${worker.abandoned ? `, ${counted(worker.abandoned, "abandoned function")}` : ""}`} /><b>${worker.claims} of ${worker.slots}${worker.abandoned ? `, ${worker.abandoned} abandoned` : ""}</b></a>` },
  { name: "host", title: "Host", kind: "short", wide: true, cell: (worker) => worker.host },
  { name: "pid", title: "Process", number: true, wide: true, cell: (worker) => worker.pid },
  { name: "queues", title: "Queues", kind: "line", wide: true, cell: (worker) => worker.queues.join(", ") || "default" },
  { name: "isolation", title: "Tasks in", wide: true, cell: (worker) => worker.isolation },
  { name: "version", title: "Version", wide: true, cell: (worker) => worker.version },
  { name: "started", title: "Runs for", number: true, wide: true, cell: (worker) => html`<time title=${dateTime(worker.started)}>${span(passed(worker.started, worker.now))}</time>` },
];

const HELD = [
  { name: "plan", title: "Plan", number: true, cell: (each) => html`<a href=${to(["plans", each.plan])}>${each.plan}</a>` },
  { name: "task", title: "Task", number: true, cell: (each) => html`<a href=${to(["plans", each.plan, "tasks", each.number])}>${each.number}</a>` },
  { name: "name", title: "Name", kind: "name", cell: (each) => each.name ?? "(not readable here)" },
  { name: "state", title: "State", cell: (each) => html`<${State} state=${each.state} />` },
  { name: "attempt", title: "Attempt", number: true, wide: true, cell: (each) => each.attempt + 1 },
  { name: "queue", title: "Queue", wide: true, cell: (each) => each.queue || "default" },
  { name: "since", title: "For", number: true, cell: (each) => html`<time title=${dateTime(each.since)}>${span(passed(each.since, each.now))}</time>` },
];
