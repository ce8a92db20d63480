// One task: its state and why, its attempts with their tracebacks, its neighbours, its values.

import { html, useState } from "../ui.js";
import { act, mayDo, send } from "../api.js";
import { count, counted, dateTime, passed, span } from "../format.js";
import { Ask, Empty, Figures, Head, Loading, Panel, Problem } from "../parts.js";
import { State, wordOf } from "../states.js";
import { to } from "../place.js";
import { useEvents, useNow, useRead } from "../live.js";
import { TaskHistory } from "./task_history.js";
import { Causes } from "./why.js";
import { TaskLog } from "./task_log.js";
import { Znodes } from "./znodes.js";

/** Of a value that is asked for so many characters are shown. */
const SHOWN_MAX = 100_000;

export function Task({ plan, number }) {
  const [tick, setTick] = useState(0);
  const [told, setTold] = useState(null);
  const read = useRead(`plans/${plan}/tasks/${number}`, { wake: tick, pause: 800 });
  const ofPlan = useRead(`plans/${plan}`, {});
  useEvents(`plans/${plan}/events`, (name, facts) => {
    if (name !== "plan") return;
    const mine = facts.tasks.find((each) => each.number === Number(number));
    if (mine) setTold({ state: mine.state, of: read.data });
    setTick((old) => old + 1);
  });
  const crumbs = [["Plans", to(["plans"])], [ofPlan.data?.name || `Plan ${plan}`, to(["plans", plan])], ["Tasks", to(["plans", plan, "tasks"])]];
  if (!read.data) return html`<${Head} crumbs=${crumbs} title=${`Task ${number}`} />${read.error ? html`<${Problem} error=${read.error} />` : html`<${Loading} />`}`;
  // An event may be ahead of the read that it woke, never behind one that began later.
  const task = told && told.of === read.data ? { ...read.data, state: told.state } : read.data;
  const state = task.state === "finished" && task.failed ? "failed" : task.skipped ? "skipped" : task.state;
  return html`<${Head} crumbs=${crumbs} title=${task.name || `Task ${task.number}`} beside=${html`<${State} state=${state} badge />`} below=${html`<span class="mono">${task.function || task.path}</span>`}>
      <${Actions} task=${task} again=${read.again} />
    <//>
    <${Numbers} task=${task} />
    <div class="grid">
      <div class="two-thirds pile">
        ${task.doubt && html`<${Panel} title="Finished, or never a task"><p>${capital(task.doubt)}.</p><//>`}
        ${task.why?.causes.length > 0 && html`<${Panel} title=${`Why it is ${wordOf(state)}`}><${Causes} why=${task.why} plan=${plan} own=${task.number} /><//>`}
        <${TaskLog} key=${`log ${plan} ${task.number}`} task=${task} wake=${tick} />
        <${Failures} task=${task} />
        <${Values} task=${task} />
        <${TaskHistory} key=${`${plan} ${task.number}`} plan=${plan} number=${task.number} version=${`${task.version} ${task.state}`} />
      </div>
      <div class="third pile">
        <${Neighbours} title="Waits for" all=${task.waits_for_count} tasks=${task.waits_for} plan=${plan} none=${task.arrived ? `Nothing any more: ${counted(task.arrived, "result")} arrived.` : "Nothing."} />
        <${Neighbours} title="Feeds" all=${task.feeds_count} tasks=${task.feeds} plan=${plan} none="No task that is left takes its result." />
        <${Options} task=${task} />
      </div>
    </div>
    <${Znodes} plan=${plan} task=${number} wake=${tick} />`;
}

function Actions({ task, again }) {
  if (!mayDo("operate") || task.state === "finished") return null;
  const go = (name, said, none) => async () => {
    const answer = await act(`plans/${task.plan}/tasks/${task.number}/${name}`);
    again();
    return answer.changed ? said : none;
  };
  const mayRetry = task.state === "dead" || task.state === "delayed";
  return html`
    ${mayRetry && html`<${Ask} first label=${task.state === "dead" ? "Retry" : "Run now"} title="Retry this task?" text=${task.state === "dead" ? "It will be runnable again, with all its attempts." : "It will be runnable now, and not at its time."} act=${go("retry", "The task is runnable again.", "There was nothing to retry.")} />`}
    <${Ask} danger label="Skip" title="Skip this task?" text="It will not run any more. Tasks that take its result get null instead. This cannot be undone." act=${go("skip", "The task is skipped.", "It was decided before.")} />
    ${task.state !== "dead" && html`<${Ask} danger label="Cancel" title="Cancel this task?" text="It fails for good, whether it runs or waits." act=${go("cancel", "The task is cancelled.", "It was decided before.")} />`}`;
}

function Numbers({ task }) {
  const now = useNow();
  const since = task.since ?? task.failures.at(-1)?.when ?? task.outcome?.failure?.when ?? null;
  const worker = task.worker ? html`<a href=${to(["workers"], { worker: task.worker })}>${task.worker}</a>` : "–";
  return html`<${Figures} of=${[
    ["Task", count(task.number), `of plan ${task.plan}`],
    ["Attempts used", task.attempts_used === null ? "–" : count(task.attempts_used), task.attempts === null ? "" : `of ${count(task.attempts)}`],
    task.due !== null ? ["Runnable in", span(-passed(task.due, now)), dateTime(task.due)] : [task.state === "finished" ? "Finished" : `${capital(wordOf(task.state))} for`, since === null ? "–" : `${span(passed(since, now))}${task.state === "finished" ? " ago" : ""}`, since === null ? "" : `since ${dateTime(since)}`, "is-wide"],
    ["Worker", html`<span class="small-value">${worker}</span>`],
  ]} />`;
}

const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

function Failures({ task }) {
  const last = task.outcome?.failure;
  const all = last && !task.failures.some((each) => each.n === last.n && each.when === last.when) ? [...task.failures, last] : task.failures;
  return html`<${Panel} title="Attempts that failed">
    ${all.length === 0
      ? html`<${Empty} title="No attempt has failed." />`
      : html`<ol class="attempts" reversed>
          ${[...all].reverse().map((failure, at) => html`<li key=${`${failure.n} ${failure.when}`}>
            <div><b>${failure.kind}</b>${failure.message && `: ${failure.message}`}</div>
            <div class="dim">attempt ${failure.n + 1} · ${dateTime(failure.when)}${failure.worker && html` · ${failure.worker}`}</div>
            ${failure.traceback && html`<details open=${at === 0}><summary>Traceback</summary><pre class="text" tabindex="0">${failure.traceback}</pre></details>`}
          </li>`)}
        </ol>`}
  <//>`;
}

function Values({ task }) {
  const path = `plans/${task.plan}`;
  const hasResult = task.outcome && ["result", "skipped"].includes(task.outcome.kind);
  return html`<${Panel} title="Values">
    <div class="pile">
      ${task.state !== "finished" && html`<${Value} name="arguments" path=${`${path}/tasks/${task.number}/arguments`} />`}
      ${hasResult && html`<${Value} name="result" size=${task.outcome.size} path=${`${path}/results/${task.number}`} />`}
      ${task.state === "finished" && !task.outcome && html`<${Empty} title="Its result is not kept.">Add the task with keep=True to keep it.<//>`}
      ${task.outcome?.kind === "undecodable" && html`<p>Its outcome cannot be decoded with the key of the service.</p>`}
    </div>
  <//>`;
}

/** A value, as text, once somebody asks for it. */
function Value({ name, path, size }) {
  const [text, setText] = useState(null);
  const [error, setError] = useState(null);
  const show = async () => {
    try {
      const said = await (await send("GET", path)).text();
      setText(said.length > SHOWN_MAX ? `${said.slice(0, SHOWN_MAX)}\n… and ${count(said.length - SHOWN_MAX)} more characters` : pretty(said));
      setError(null);
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<div>
    ${text === null && html`<button class="button" type="button" onClick=${show}>Show its ${name}${size !== undefined && html` <span class="dim">${count(size)} bytes</span>`}</button>`}
    ${text !== null && html`<h3>${name}</h3><pre class="text" tabindex="0">${text}</pre>`}
    ${error && html`<${Problem} error=${error} />`}
  </div>`;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // Python's JSON has NaN, which JavaScript's has not
  }
}

function Neighbours({ title, all, tasks, plan, none }) {
  return html`<${Panel} title=${all ? `${title} (${count(all)})` : title}>
    ${all === 0 && html`<span class="dim">${none}</span>`}
    <ul class="list">
      ${tasks.map((each) => html`<li key=${each.number}><a href=${to(["plans", plan, "tasks", each.number])}>${each.name ?? `task ${each.number}`}</a><${State} state=${each.state} /></li>`)}
    </ul>
    ${all > tasks.length && tasks.length > 0 && html`<span class="dim">and ${count(all - tasks.length)} more</span>`}
  <//>`;
}

function Options({ task }) {
  const facts = [
    // Of a finished task the history knows some; null is what nobody knows any more.
    task.queue !== null && ["Queue", task.queue],
    task.priority !== null && ["Priority", count(task.priority)],
    task.state !== "finished" && ["Time limit", task.timeout === null ? "none" : span(task.timeout)],
    task.retry_delay !== null && ["Retry after", span(task.retry_delay)],
    task.run_if !== null && ["Runs if", task.run_if.replaceAll("_", " ")],
    task.limits?.length > 0 && ["Limits", task.limits.join(", ")],
    task.pure && ["Pure", "yes"],
    task.not_before && ["Not before", dateTime(task.not_before)],
    task.deadline && ["Deadline", dateTime(task.deadline)],
    task.notes > 0 && ["Progress notes", count(task.notes)],
    ["Path", html`<code>${task.path}</code>`],
  ].filter(Boolean);
  return html`<${Panel} title="Options"><dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl><//>`;
}
