// Why a plan or a task does not run now: exact causes, with what to do.

import { html } from "../ui.js";
import { Empty, Loading, Problem, Words } from "../parts.js";
import { to } from "../place.js";
import { useRead } from "../live.js";

export function Why({ path, plan, wake }) {
  const read = useRead(path, { wake, pause: 3000 });
  if (read.error) return html`<${Problem} error=${read.error} />`;
  if (!read.data) return html`<${Loading} />`;
  return html`<${Causes} why=${read.data} plan=${plan} />`;
}

/** A sentence: what stands in it between backticks is to be typed. */
function Told({ text }) {
  return text.split("`").map((part, at) => (at % 2 ? html`<code><${Words} of=${part} /></code>` : part));
}

export function Causes({ why, plan, own = null }) {
  if (!why.causes.length) return html`<${Empty} title="Nothing holds it up." />`;
  return html`<div class="pile">
    ${why.causes.map((cause) => html`<div class="why" key=${`${cause.code} ${cause.task} ${cause.worker}`}>
      <p><${Told} text=${cause.text} /> ${cause.task !== null && cause.task !== own && html`<a href=${to(["plans", plan, "tasks", cause.task])}>Task ${cause.task}</a>`}</p>
      ${cause.advice && html`<p class="dim"><${Told} text=${cause.advice} /></p>`}
    </div>`)}
  </div>`;
}
