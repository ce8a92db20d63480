// Schedules: when each makes its next plan, and what became of its last due times.

import { html } from "../ui.js";
import { act, ask, mayDo } from "../api.js";
import { dateTime, passed, span } from "../format.js";
import { Ask, Empty, Head, Loading, Panel, Problem, Table } from "../parts.js";
import { pulse } from "../overview.js";
import { State } from "../states.js";
import { to } from "../place.js";
import { useNow, useRead } from "../live.js";
import { useWatched } from "../store.js";

export function Schedules() {
  const read = useRead("schedules", { wake: useWatched(pulse), every: 10000, pause: 900 });
  const now = useNow();
  const items = (read.data?.items ?? []).map((schedule) => ({ ...schedule, now }));
  const columns = [...COLUMNS, ...(mayDo("operate") ? [{ name: "actions", title: "", cell: (schedule) => html`<${Actions} schedule=${schedule} again=${read.again} />` }] : [])];
  return html`<${Head} title="Schedules" />
    <${Panel} title="Schedules of this root" flush>
      ${read.error && html`<${Problem} error=${read.error} />`}
      ${!read.data && !read.error && html`<${Loading} />`}
      ${read.data && items.length === 0 && html`<${Empty} title="There is no schedule." command='client.schedule("nightly", "0 3 * * *", build)'>A schedule makes a plan at each of its times. Workers look after it. Set one from Python:<//>`}
      ${items.length > 0 && html`<${Table} label="Schedules" columns=${columns} rows=${items} keyOf=${(schedule) => schedule.name} />`}
    <//>`;
}

function Actions({ schedule, again }) {
  const path = `schedules/${encodeURIComponent(schedule.name)}`;
  const go = (name, said) => async () => {
    const answer = await act(`${path}/${name}`);
    again();
    return name === "trigger" ? `Plan ${answer.number} is made.` : said;
  };
  const remove = async () => {
    await ask("DELETE", path);
    again();
    return "The schedule is removed.";
  };
  return html`<div class="actions">
    <${Ask} small label="Trigger" describedBy=${schedule.name} title=${`Make a plan of ${schedule.name} now?`} text="It is made at once, whether it is due or not." act=${go("trigger", "")} />
    ${schedule.paused
      ? html`<${Ask} small label="Resume" describedBy=${schedule.name} title=${`Resume ${schedule.name}?`} text="It goes on with its next due time." act=${go("resume", "The schedule goes on.")} />`
      : html`<${Ask} small label="Pause" describedBy=${schedule.name} title=${`Pause ${schedule.name}?`} text="No due time counts until it is resumed. Its plans go on." act=${go("pause", "The schedule is paused.")} />`}
    <${Ask} small danger label="Remove" describedBy=${schedule.name} title=${`Remove ${schedule.name}?`} text="Its plans stay, and go on. This cannot be undone." act=${remove} />
  </div>`;
}

function Fired({ fired }) {
  const last = fired.at(-1);
  if (!last) return html`<span class="dim">not yet</span>`;
  const said = `${last.how}, ${dateTime(last.due)}`;
  return last.plan === null ? said : html`${last.outcome && html`<${State} state=${last.outcome} /> `}<a href=${to(["plans", last.plan])}>Plan ${last.plan}</a> <span class="dim">${said}</span>`;
}

const COLUMNS = [
  { name: "name", title: "Schedule", kind: "name", cell: (schedule) => schedule.name },
  { name: "state", title: "State", cell: (schedule) => html`<${State} state=${schedule.paused ? "paused" : "running"} word=${schedule.paused ? "paused" : "on"} />` },
  { name: "cron", title: "When", kind: "short", cell: (schedule) => html`<code>${schedule.cron}</code> <span class="dim">${schedule.timezone}</span>` },
  { name: "next", title: "Next", kind: "short", cell: (schedule) => (schedule.next === null ? "–" : html`<time title=${dateTime(schedule.next)}>in ${span(-passed(schedule.next, schedule.now))}</time>`) },
  { name: "builder", title: "Builder", kind: "name mono", wide: true, cell: (schedule) => schedule.builder },
  { name: "overlap", title: "Overlap", wide: true, kind: "short widest", cell: (schedule) => schedule.overlap },
  { name: "last", title: "Last due time", kind: "short", wide: true, cell: (schedule) => html`<${Fired} fired=${schedule.fired} />` },
];
