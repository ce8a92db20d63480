// What a task has printed and logged, one attempt at a time. It is read once somebody asks for it.

import { html, useEffect, useRef, useState } from "../ui.js";
import { count, counted, dateTime } from "../format.js";
import { Empty, Loading, Panel, Problem } from "../parts.js";
import { useRead } from "../live.js";
import { printable } from "../printable.js";

/** So many bytes of an attempt are shown, the last ones: an attempt that has ended keeps no more. */
const TAIL = 65_536;
const PAGE = 500;
const LATEST = "last";

/** `wake` changes with each event of the plan, which also tell that something was printed. */
export function TaskLog({ task, wake }) {
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(LATEST);
  const isRunning = task.state === "running";
  const read = useRead(isOpen ? `plans/${task.plan}/tasks/${task.number}/logs` : null, {
    query: { attempt: chosen, tail: TAIL, limit: PAGE },
    wake: isRunning ? wake : `${task.version} ${task.state}`,
    pause: 1500,
    rest: 4, // the service reads the whole history of the plan for it
  });
  const button = html`<button class="button small" type="button" aria-expanded=${isOpen} aria-controls="task-log" onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide" : "Show"}<span class="said"> its log</span></button>`;
  return html`<${Panel} title="Log" tools=${button}>
    <div id="task-log" class="pile">
      ${isOpen ? html`<${Read} read=${read} task=${task} isRunning=${isRunning} chosen=${chosen} setChosen=${setChosen} />` : html`<span class="dim">What it has printed and logged, attempt by attempt.</span>`}
    </div>
  <//>`;
}

function Read({ read, task, isRunning, chosen, setChosen }) {
  if (read.error) {
    if (read.error.kind !== "history-not-kept") return html`<${Problem} error=${read.error} />`;
    return html`<${Empty} title="This plan keeps no history.">So what its tasks print is not kept either.<//>`;
  }
  if (!read.data) return html`<${Loading} />`;
  const { attempts, missing } = read.data;
  if (attempts.length === 0) {
    const title = task.state === "finished" ? "The history has nothing on it." : "No attempt has begun yet.";
    return html`<${Empty} title=${title} /><${Missing} of=${missing} />`;
  }
  const latest = attempts.at(-1).attempt;
  const attempt = attempts.find((each) => each.attempt === (chosen === LATEST ? latest : Number(chosen))) ?? attempts.at(-1);
  return html`<div class="fields">
      <label for="attempt">Attempt</label>
      <select id="attempt" value=${chosen} onChange=${(event) => setChosen(event.target.value)}>
        <option value=${LATEST}>the latest</option>
        ${[...attempts].reverse().map((each) => html`<option key=${each.attempt} value=${String(each.attempt)}>${`${each.attempt + 1}: ${counted(each.printed, "byte")}`}</option>`)}
      </select>
      <span class="dim">attempt ${attempt.attempt + 1} on ${attempt.worker}${attempt.claimed !== null && `, since ${dateTime(attempt.claimed)}`}</span>
    </div>
    ${read.isOld ? html`<${Loading} />` : html`<${Printed} items=${read.data.items} attempt=${attempt.attempt} isRunning=${isRunning && attempt.attempt === latest} />`}
    <${Missing} of=${missing} />`;
}

const Missing = ({ of }) => of.map((each) => html`<p key=${each} class="dim">The history is not whole: ${each}.</p>`);

function Printed({ items, attempt, isRunning }) {
  const text = useRef(null);
  const isAtEnd = useRef(true);
  // Who has moved up to read something is left there.
  useEffect(() => void (text.current && isAtEnd.current && (text.current.scrollTop = text.current.scrollHeight)));
  const look = ({ target }) => (isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 4);
  if (items.length === 0) {
    return html`<${Empty} title=${`Attempt ${attempt + 1} has printed nothing${isRunning ? " so far" : ""}.`}>Or its worker keeps nothing, as with --task-output 0.<//>`;
  }
  return html`<pre class="text log" ref=${text} onScroll=${look} tabindex="0" role="region" aria-label=${`What attempt ${attempt + 1} has printed`}>
      ${items.map((each) => html`${each.cut > 0 && html`<span class="gap" key=${`gap ${each.position}`}>${counted(each.cut, "byte")} left out</span>`}<span key=${each.position}>${printable(each.text)}</span>`)}
    </pre>
    <p class="dim">Only the last ${count(16)} KiB of each attempt are kept, unless --task-output of its worker sets another size.${isRunning && " It runs: its output appears every 2 to 15 seconds."}</p>`;
}
