// Limits of what runs at the same time, or starts within a time; and who holds their permits.

import { html, useRef, useState } from "../ui.js";
import { ask, mayDo } from "../api.js";
import { count, span } from "../format.js";
import { Ask, Bar, Empty, Head, Loading, Panel, Problem, Table, toast } from "../parts.js";
import { pulse } from "../overview.js";
import { to } from "../place.js";
import { useRead } from "../live.js";
import { useWatched } from "../store.js";

const SHOWN = 6;
const PERIODS = { 1: "a second", 60: "a minute", 3600: "an hour", 86400: "a day" };

export function Limits() {
  const read = useRead("limits", { wake: useWatched(pulse), every: 5000, pause: 1500 });
  const items = read.data?.items ?? [];
  const columns = [...COLUMNS, ...(mayDo("operate") ? [{ name: "actions", title: "", cell: (limit) => html`<${Remove} limit=${limit} again=${read.again} />` }] : [])];
  return html`<${Head} title="Limits" />
    <${Panel} title="Limits of this root" flush>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && items.length === 0 && html`<${Empty} title="There is no limit." command="zkplan limit set database 5">A task names those that it keeps to: plan.add_task(fn, limits=["database"]). Set one below, or:<//>`}
      ${items.length > 0 && html`<${Table} label="Limits" columns=${columns} rows=${items} keyOf=${(limit) => limit.name} />`}
      ${mayDo("operate") && html`<${SetLimit} again=${read.again} />`}
    <//>`;
}

function SetLimit({ again }) {
  const form = useRef(null);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const { name, size, per } = Object.fromEntries(new FormData(form.current));
    try {
      await ask("PUT", `limits/${encodeURIComponent(name)}`, { body: { size: Number(size), per: per || null } });
      setError(null);
      form.current.reset();
      again();
      toast(`The limit ${name} is ${size}.`);
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<form class="more fields" ref=${form} onSubmit=${submit}>
    <span class="fields">
      <input name="name" aria-label="Name of the limit" placeholder="Name" required pattern="[a-z0-9._\\-]{1,40}" title="Small letters, digits, . _ -" />
      <input name="size" aria-label="Size" type="number" min="0" placeholder="Size" required />
      <select name="per" aria-label="Period"><option value="">at the same time</option><option value="second">a second</option><option value="minute">a minute</option><option value="hour">an hour</option><option value="day">a day</option></select>
      <button class="button">Set</button>
    </span>
    ${error && html`<${Problem} error=${error} />`}
  </form>`;
}

function Remove({ limit, again }) {
  const remove = async () => {
    await ask("DELETE", `limits/${encodeURIComponent(limit.name)}`);
    again();
    return `The limit ${limit.name} is removed.`;
  };
  return html`<div class="actions"><${Ask} small danger label="Remove" describedBy=${limit.name} title=${`Remove the limit ${limit.name}?`} text="Tasks that name it wait until it is set again." act=${remove} /></div>`;
}

const COLUMNS = [
  { name: "name", title: "Limit", kind: "name", cell: (limit) => limit.name },
  { name: "size", title: "Allows", kind: "short", cell: (limit) => `${count(limit.size)} ${limit.period === null ? "at the same time" : PERIODS[limit.period] ?? `in ${span(limit.period)}`}` },
  { name: "used", title: "Used", kind: "progress-cell", cell: (limit) => html`<div class="progress"><${Bar} counts=${{ running: limit.held.length }} all=${Math.max(limit.size, limit.held.length)} label=${`${limit.held.length} of ${limit.size} in use`} /><b>${count(limit.held.length)}</b></div>` },
  {
    name: "held",
    title: "Held by",
    wide: true,
    kind: "name",
    cell: (limit) => html`${limit.held.slice(0, SHOWN).map((permit, at) => html`${at > 0 && ", "}${permit.plan === null || permit.task === null ? permit.worker : html`<a href=${to(["plans", permit.plan, "tasks", permit.task])}>${permit.plan}/${permit.task}</a>`}`)}${limit.held.length > SHOWN && html` <span class="dim">and ${count(limit.held.length - SHOWN)} more</span>`}${limit.held.length === 0 && html`<span class="dim">nobody</span>`}`,
  },
];
