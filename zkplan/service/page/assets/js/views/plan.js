// One plan: its numbers, live; its graph, its tasks, why it has not ended, and its znodes.

import { html, useEffect, useRef, useState } from "../ui.js";
import { act, ask, mayDo } from "../api.js";
import { ago, ahead, count, counted, dateTime, passed, percent, rate, span } from "../format.js";
import { Ask, Bar, Empty, Figures, Head, Key, Loading, Panel, Problem } from "../parts.js";
import { overview, standsStill } from "../overview.js";
import { place, to } from "../place.js";
import { State } from "../states.js";
import { useEvents, useNow, useRead } from "../live.js";
import { useWatched } from "../store.js";
import { GraphModel } from "../graph/model.js";
import { PlanDead } from "./plan_dead.js";
import { PlanGraph } from "./plan_graph.js";
import { PlanProgress } from "./plan_progress.js";
import { PlanResults } from "./plan_results.js";
import { PlanTasks } from "./plan_tasks.js";
import { Why } from "./why.js";
import { Znodes } from "./znodes.js";

/** The parts of a plan: the end of its address, its name, what shows it. */
const TABS = [
  ["graph", "Graph", PlanGraph],
  ["tasks", "Tasks left", PlanTasks],
  ["results", "Results", PlanResults],
  ["progress", "Time line", PlanProgress],
  ["why", "Why", ({ number, tick }) => html`<${Panel} title="Why it has not ended"><${Why} path=${`plans/${number}/why`} plan=${number} wake=${tick} /><//>`],
  ["znodes", "Znodes", ({ number, tick }) => html`<${Znodes} plan=${number} wake=${tick} />`],
];

export function Plan({ which, tab }) {
  const [live, setLive] = useState(null);
  const [isGone, setGone] = useState(false);
  const [tick, setTick] = useState(0);
  const [stale, setStale] = useState(0);
  const model = useRef(new GraphModel());
  const track = useRef([]);
  const opened = useRef(null);
  // Views that follow single tasks are told of them here: each is called with [{number, state}].
  const followers = useRef(new Set());
  const read = useRead(`plans/${which}`, { wake: tick, pause: 1500 });
  useEvents(isGone ? null : `plans/${which}/events`, (name, facts) => {
    if (name === "gone") setGone(true);
    if (name !== "plan") return;
    setLive(facts);
    track.current.push([Date.now() / 1000, facts.finished]);
    for (const follower of followers.current) follower(facts);
    if (model.current.follow(facts, performance.now())) setStale((old) => old + 1);
    setTick((old) => old + 1);
  });
  if (read.error && !read.data) return html`<${Head} crumbs=${[["Plans", to(["plans"])]]} title=${`Plan ${which}`} /><${Problem} error=${read.error} />`;
  if (!read.data) return html`<${Head} crumbs=${[["Plans", to(["plans"])]]} title=${`Plan ${which}`} /><${Loading} />`;
  const plan = { ...read.data, ...(live ? { state: live.state, added: live.added, finished: live.finished, dead: live.dead, tasks: live.added - live.finished } : {}) };
  // Of a plan that has ended no graph is left; who watches one keeps what is shown as it ends.
  opened.current ??= plan.ended ? "progress" : "graph";
  const shown = TABS.find(([name]) => name === (tab ?? opened.current)) ?? TABS[0];
  return html`<${Title} plan=${plan} isGone=${isGone} again=${read.again} />
    ${isGone && html`<div class="error" role="alert"><b>This plan was removed.</b> What is shown is how it was last. <a href=${to(["plans"])}>All plans</a></div>`}
    ${plan.reason && html`<div class="error"><b>It was cancelled:</b> ${plan.reason}</div>`}
    <${Numbers} plan=${plan} counts=${countsOf(plan, live)} />
    <${PlanDead} number=${which} dead=${plan.state === "cancelled" ? 0 : plan.dead} hasEnded=${Boolean(plan.ended)} />
    <${Tabs} which=${which} shown=${shown[0]} />
    <${shown[2]} key=${shown[0]} number=${which} plan=${plan} tick=${tick} followers=${followers.current} track=${track.current} model=${model.current} stale=${stale} isLive=${live !== null} />`;
}

function Tabs({ which, shown }) {
  const strip = useRef(null);
  // Where the strip is wider than the page, what is shown stands in the middle of what is seen of it.
  useEffect(() => {
    const [all, tab] = [strip.current, strip.current.querySelector("[aria-current]")];
    all.scrollLeft = tab.offsetLeft - all.offsetLeft - (all.clientWidth - tab.clientWidth) / 2;
  }, [shown]);
  return html`<nav class="tabs" aria-label="Parts of the plan" ref=${strip}>
    ${TABS.map(([name, title]) => html`<a key=${name} href=${to(["plans", which, name])} aria-current=${shown === name ? "page" : undefined}>${title}</a>`)}
  </nav>`;
}

/** The counts of all tasks by state: those of the last event, or those that were read. */
function countsOf(plan, live) {
  const left = live ? live.counts : { ...plan.progress, finished: 0, added: 0 };
  const known = Object.values(live?.counts ?? {}).reduce((sum, each) => sum + each, 0);
  // Between two looks a task may be in neither; a bar without a hole is calmer.
  const waiting = live ? (left.waiting ?? 0) + Math.max(0, plan.tasks - known) : left.waiting;
  return { ...left, waiting, skipped: plan.skipped, finished: Math.max(0, plan.finished - plan.skipped), added: 0 };
}

function Title({ plan, isGone, again }) {
  const number = plan.number;
  const now = useNow();
  const said = [
    `created ${dateTime(plan.created)}, ${ago(passed(plan.created, now))}`,
    plan.ended && `${plan.state === "failed" ? "failed" : "done"} ${dateTime(plan.ended)}`,
    plan.retried > 0 && `retried ${counted(plan.retried, "time")}`,
    plan.key && `key ${plan.key}`,
    !plan.ended && (plan.on_failure === "cascade" ? "if a task dies, what needs it fails" : "if a task dies, it waits to be retried or skipped"),
    plan.weight !== 1 && `weight ${plan.weight}`,
    plan.priority !== 0 && `priority ${plan.priority}`,
    plan.not_before && `not before ${dateTime(plan.not_before)}`,
    plan.deadline && `deadline ${dateTime(plan.deadline)}`,
  ].filter(Boolean).join(" · ");
  const go = (name, told) => async () => {
    await act(`plans/${number}/${name}`);
    again();
    return told;
  };
  const runs = plan.state === "running" || (plan.state === "failed" && !plan.ended);
  const rerun = "What failed, and what failed by it, runs again, with all attempts. Results of other tasks are kept.";
  return html`<${Head} crumbs=${[["Plans", to(["plans"])], [`Plan ${number}`, to(["plans", number])]]} title=${plan.name || `Plan ${number}`} beside=${html`<${State} state=${plan.state} badge />`} below=${said}>
    ${mayDo("operate") && !isGone && html`
      ${plan.dead > 0 && plan.ended && plan.state === "failed" && html`<${Ask} label=${`Retry ${count(plan.dead)} failed`} title="Retry this plan?" text=${rerun} act=${go("retry", "The plan runs again.")} first />`}
      ${plan.dead > 0 && runs && html`<${Ask} label=${`Retry ${count(plan.dead)} dead`} title="Retry the dead tasks?" text=${`${counted(plan.dead, "task")} will be runnable again, with all attempts.`} act=${go("retry", "The dead tasks are runnable again.")} first />`}
      ${runs && html`<${Ask} label="Pause" title="Pause this plan?" text="Workers claim none of its tasks any more. Those that run go on." act=${go("pause", "The plan is paused.")} />`}
      ${plan.state === "paused" && html`<${Ask} label="Resume" title="Resume this plan?" text="Workers claim its tasks again." act=${go("resume", "The plan goes on.")} first />`}
      ${(runs || plan.state === "paused" || plan.state === "defining") && html`<${Ask} label="Cancel" title="Cancel this plan for good?" text="None of its tasks starts any more. This cannot be undone." act=${go("cancel", "The plan is cancelled.")} danger />`}
      ${!runs && plan.state !== "defining" && plan.state !== "paused" && html`<${Ask} label="Remove" title="Remove this plan?" text="It is deleted from ZooKeeper, with its results. This cannot be undone." act=${async () => { await ask("DELETE", `plans/${number}`); location.hash = to(["plans"]); return "The plan is removed."; }} danger />`}
    `}
  <//>`;
}

/** How many tasks are in a state, with the way to them. */
const tasksIn = (plan, state, many) => (many > 0 ? html`<a href=${to(["plans", plan.number, "tasks"], { state })}>${count(many)}</a>` : "0");

function Numbers({ plan, counts }) {
  const seen = useWatched(overview)?.plans.get(plan.number);
  const running = counts.running ?? 0;
  return html`<${Figures} of=${[
      ["Finished", percent(plan.finished, plan.added), `${count(plan.finished)} of ${count(plan.added)}`, "is-wide"],
      ["Running", tasksIn(plan, "running", running), counts["claimed ahead"] ? `+${count(counts["claimed ahead"])} ahead` : ""],
      ["Runnable", tasksIn(plan, "runnable", counts.runnable ?? 0)],
      ["Waiting", count((counts.waiting ?? 0) + (counts.delayed ?? 0) + (counts.gated ?? 0))],
      ["Dead", tasksIn(plan, "dead", plan.dead), "", plan.dead > 0 ? "is-dead" : ""],
      ["Tasks a second", rate(seen?.rate)],
      plan.ended ? ["Took", span(plan.ended - plan.created)] : ["Ends in", seen && standsStill({ ...seen, state: plan.state }) ? html`<a class="small-value" href=${to(["plans", plan.number, "why"])}>nothing runs</a>` : ahead(seen?.left), seen?.left ? `at ${dateTime(Date.now() / 1000 + seen.left).slice(11, 16)}` : ""],
    ]} />
    <div class="panel pile body-only"><${Bar} counts=${counts} all=${plan.added} tall /><${Key} counts=${counts} /></div>`;
}
