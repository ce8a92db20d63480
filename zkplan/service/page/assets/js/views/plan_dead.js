// What is dead in a plan: the first errors, before anybody asks, and the way to all of them.

import { html } from "../ui.js";
import { counted } from "../format.js";
import { to } from "../place.js";
import { useRead } from "../live.js";

const SHOWN = 3;

export function PlanDead({ number, dead, hasEnded }) {
  const read = useRead(dead ? `plans/${number}/tasks` : null, { query: { state: "dead", limit: SHOWN }, wake: dead, pause: 2000 });
  const tasks = dead ? read.data?.items ?? [] : [];
  if (!tasks.length) return null;
  return html`<section class="error" aria-label="Dead tasks">
    ${hasEnded ? html`<p><b>${counted(dead, "task")} failed.</b> Retry the plan: what failed runs again, with the results of the others.</p>` : html`<p><b>${counted(dead, "task")} ${dead === 1 ? "is" : "are"} dead.</b> What waits for ${dead === 1 ? "it" : "them"} cannot run until somebody retries or skips ${dead === 1 ? "it" : "them"}.</p>`}
    <ul>${tasks.map((task) => html`<li key=${task.number}><a href=${to(["plans", number, "tasks", task.number])}>${task.name ?? `task ${task.number}`}</a>: ${task.error}</li>`)}</ul>
    ${dead > tasks.length && html`<a href=${to(["plans", number, "tasks"], { state: "dead" })}>All ${counted(dead, "dead task")}</a>`}
  </section>`;
}
