// The page: login, navigation, and the view of the place where the reader is.

import { html, render, useEffect, useRef, useState } from "./ui.js";
import { away, hasToken, logIn, logInAgain, logOut, login } from "./api.js";
import { place, to } from "./place.js";
import { Loading, Problem, Toast } from "./parts.js";
import { Scheme } from "./scheme.js";
import { useWatched } from "./store.js";
import { overview } from "./overview.js";
import { count } from "./format.js";
import { Plans } from "./views/plans.js";
import { Plan } from "./views/plan.js";
import { Task } from "./views/task.js";
import { Workers } from "./views/workers.js";
import { Queues } from "./views/queues.js";
import { Limits } from "./views/limits.js";
import { Schedules } from "./views/schedules.js";
import { DeadLetters } from "./views/dead_letters.js";

const VIEWS = [
  ["plans", "Plans", Plans],
  ["workers", "Workers", Workers],
  ["queues", "Queues", Queues],
  ["limits", "Limits", Limits],
  ["schedules", "Schedules", Schedules],
  ["dead-letters", "Dead letters", DeadLetters],
];

function App() {
  const told = useWatched(login);
  const [isTried, setTried] = useState(false);
  useEffect(() => {
    const again = async () => {
      try {
        await logInAgain();
      } catch (error) {
        if (error.status !== 401 && error.status !== 403) {
          setTimeout(again, 2000); // the service is away, not the login
          return;
        }
      }
      setTried(true);
    };
    if (!told) again();
  }, []);
  if (told) return html`<${Frame} told=${told} />`;
  return isTried ? html`<${Login} />` : html`<${Away} /><${Loading} />`;
}

function Login() {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const field = useRef(null);
  useEffect(() => {
    document.title = "Log in · zkplan";
    field.current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await logIn(field.current.value.trim());
    } catch (failed) {
      setError(failed.status === 401 ? { title: "This token is not known here.", detail: "Tokens are in the file that the service was started with." } : failed);
      setBusy(false);
    }
  };
  return html`<main class="login">
    <form class="panel" onSubmit=${submit}>
      <div class="brand"><img src="assets/icon.svg" alt="" /><h1>zkplan</h1></div>
      <label>Token of the service
        <input ref=${field} type="password" name="token" autocomplete="current-password" required spellcheck="false" />
      </label>
      ${error && html`<${Problem} error=${error} />`}
      <button class="button first" disabled=${isBusy}>Log in</button>
      <p class="dim">It is kept until this window is closed, and sent to this service alone.</p>
    </form>
  </main>`;
}

function Away() {
  const why = useWatched(away);
  return html`<div role="alert">${why && html`<div class="notice"><span class="spin" aria-hidden="true" />${why}</div>`}</div>`;
}

function Frame({ told }) {
  const { parts } = useWatched(place);
  const main = useRef(null);
  const path = viewOf(parts);
  const first = useRef(path);
  useEffect(() => {
    // Who follows a link with the keyboard or a screen reader goes on in what it opened.
    if (first.current === path) return;
    first.current = path;
    main.current.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [path]);
  const skip = (event) => {
    event.preventDefault(); // the address names the view: it has no room for a place in it
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div class="frame">
      <${Side} told=${told} here=${parts[0]} />
      <div>
        <${Away} />
        <main id="main" ref=${main} tabindex="-1"><${View} key=${path} parts=${parts} /></main>
      </div>
    </div>
    <${Toast} />`;
}

/** The view of an address; the parts of a plan are one view, so that it stays live among them. */
function viewOf([name, plan, what, number]) {
  const isTask = what === "tasks" && number !== undefined;
  return [name, plan, ...(isTask ? [what, number] : [])].join("/");
}

function View({ parts }) {
  const [name, plan, what, number] = parts;
  if (name === "plans" && plan && what === "tasks" && number) {
    return html`<${Task} plan=${plan} number=${number} />`;
  }
  if (name === "plans" && plan) return html`<${Plan} which=${plan} tab=${what} />`;
  const found = VIEWS.find(([each]) => each === name);
  return found ? html`<${found[2]} />` : html`<${Plans} />`;
}

function Side({ told, here }) {
  const seen = useWatched(overview);
  const notes = { "dead-letters": seen?.dead || 0 };
  return html`<header class="side">
    <a class="brand" href=${to(["plans"])}><img src="assets/icon.svg" alt="" />zkplan</a>
    <nav aria-label="Views"><ul>
      ${VIEWS.map(([name, title]) => html`<li key=${name}><a href=${to([name])} aria-current=${name === here ? "page" : undefined}>${title}${notes[name] > 0 && html`<span class="alert">${count(notes[name])}<span class="said"> need somebody</span></span>`}</a></li>`)}
    </ul></nav>
    <div class="foot">
      <${Connection} />
      ${told.root && html`<span class="wide mono" title="The root in ZooKeeper">${told.root}</span>`}
      <span class="wide">may ${told.roles.join(", ")}</span>
      <div class="row"><${Scheme} />${hasToken() && html`<button class="button plain small" type="button" onClick=${logOut}>Log out</button>`}</div>
    </div>
  </header>`;
}

function Connection() {
  const why = useWatched(away);
  return html`<span class="state"><span class="pulse ${why ? "is-away" : ""}" aria-hidden="true" />${why ? "away" : "live"}</span>`;
}

render(html`<${App} />`, document.getElementById("app"));
