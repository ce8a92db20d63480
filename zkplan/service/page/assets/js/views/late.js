// What should have happened under the root and has not: dead tasks, queues that nobody serves, late schedules.

import { html } from "../ui.js";
import { count } from "../format.js";
import { pulse } from "../overview.js";
import { to } from "../place.js";
import { useRead } from "../live.js";
import { useWatched } from "../store.js";

const SHOWN = 5;

/** The service looks once for all who ask within a second. */
export function Late() {
  const read = useRead("overview", { wake: useWatched(pulse), every: 10_000, pause: 900 });
  const late = read.data?.late ?? [];
  if (!late.length) return null;
  return html`<section class="error" aria-label="What needs attention">
    <b>Needs attention</b>
    <ul>${late.slice(0, SHOWN).map((text) => html`<li key=${text}><${Linked} text=${text} /></li>`)}</ul>
    ${late.length > SHOWN && html`<span>and ${count(late.length - SHOWN)} more</span>`}
  </section>`;
}

/** The text, with a link to the plan or the queues of which it tells. */
function Linked({ text }) {
  const found = /\bplan (\d+)|\bqueue [a-z0-9._-]+/.exec(text);
  if (!found) return text;
  const end = found.index + found[0].length;
  const goal = found[1] === undefined ? to(["queues"]) : to(["plans", found[1], "why"]);
  return html`${text.slice(0, found.index)}<a href=${goal}>${found[0]}</a>${text.slice(end)}`;
}
