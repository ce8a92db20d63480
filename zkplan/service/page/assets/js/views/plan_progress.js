// How the plan went since this page was opened, and when it ends at this rate.

import { html } from "../ui.js";
import { ahead, count, dateTime, rate } from "../format.js";
import { Empty, Panel } from "../parts.js";
import { ProgressChart } from "../chart.js";
import { overview } from "../overview.js";
import { useWatched } from "../store.js";
import { PlanTimeline } from "./plan_timeline.js";

function forecastMissing(plan) {
  if (!plan.tasks) return "it has no task left";
  return plan.dead ? "none while tasks are dead: what waits for them cannot run" : "none while nothing ends";
}

export function PlanProgress({ plan, track, tick }) {
  const seen = useWatched(overview)?.plans.get(plan.number);
  const end = seen?.left ? Date.now() / 1000 + seen.left : null;
  return html`<${PlanTimeline} number=${plan.number} tick=${tick} isOver=${Boolean(plan.ended)} />${!plan.ended && html`<${Panel} title="Progress and forecast">
    <div class="pile">
      <dl class="facts">
        <dt>Finished</dt><dd>${count(plan.finished)} of ${count(plan.added)}</dd>
        <dt>Rate</dt><dd>${seen ? `${rate(seen.rate)} tasks a second, over the last 30 seconds` : "nothing ends now"}</dd>
        <dt>Forecast</dt><dd>${end ? html`ends in ${ahead(seen.left)}, at ${dateTime(end)}, if all tasks run and the rate stays` : forecastMissing(plan)}</dd>
      </dl>
      ${track.length > 1 ? html`<${ProgressChart} track=${track} from=${plan.created} all=${plan.added} end=${end} />` : html`<${Empty} title="Nothing has changed since this page was opened.">The chart grows with the plan.<//>`}
    </div>
  <//>`}`;
}
