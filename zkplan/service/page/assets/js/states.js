// The states of tasks, plans and workers: each has a colour, a shape and a word.

import { html } from "./ui.js";

const disc = () => html`<circle cx="8" cy="8" r="6.2" fill="currentcolor" />`;
const ring = () => html`<circle cx="8" cy="8" r="5.7" fill="none" stroke="currentcolor" stroke-width="1.8" />`;
const line = (d, width = 2) =>
  html`<path d=${d} fill="none" stroke="currentcolor" stroke-width=${width} stroke-linecap="round" stroke-linejoin="round" />`;
const light = (d) =>
  html`<path d=${d} fill="none" stroke="var(--surface)" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round" />`;

const SHAPES = {
  check: () => html`${disc()}${light("M5.2 8.3l2 2 3.7-4.2")}`,
  cross: () => html`${disc()}${light("M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4")}`,
  play: () => html`${ring()}<path d="M6.5 5.3v5.4l4.3-2.7z" fill="currentcolor" />`,
  ring,
  dots: () => html`<circle cx="3" cy="8" r="1.7" fill="currentcolor" /><circle cx="8" cy="8" r="1.7" fill="currentcolor" /><circle cx="13" cy="8" r="1.7" fill="currentcolor" />`,
  clock: () => html`${ring()}${line("M8 4.8v3.4l2.2 1.3", 1.7)}`,
  gate: () => html`<rect x="3" y="7" width="10" height="7" rx="1.5" fill="currentcolor" />${line("M5.2 7V5a2.8 2.8 0 0 1 5.6 0v2", 1.8)}`,
  pause: () => html`${ring()}${line("M6.5 6v4M9.5 6v4", 1.8)}`,
  dashed: () => html`<circle cx="8" cy="8" r="5.7" fill="none" stroke="currentcolor" stroke-width="1.8" stroke-dasharray="2.4 2" />`,
  slash: () => html`${ring()}${line("M4.2 11.8l7.6-7.6", 1.8)}`,
};

const KNOWN = {
  finished: ["check", "finished"],
  done: ["check", "done"],
  running: ["play", "running"],
  "claimed ahead": ["ring", "claimed ahead"],
  "left behind": ["dashed", "left behind"],
  decided: ["dashed", "being decided"],
  runnable: ["ring", "runnable"],
  waiting: ["dots", "waiting"],
  delayed: ["clock", "delayed"],
  gated: ["gate", "gated"],
  paused: ["pause", "paused"],
  draining: ["pause", "draining"],
  defining: ["dashed", "being defined"],
  "being defined": ["dashed", "being defined"],
  skipped: ["slash", "skipped"],
  cancelled: ["slash", "cancelled"],
  dead: ["cross", "dead"],
  failed: ["cross", "failed"],
};

/** The states that the tasks of a list may be asked for. */
export const TASK_STATES = [
  "running", "claimed ahead", "left behind", "runnable", "waiting", "delayed", "gated", "dead",
  "being defined",
];

/** The order of states in bars and lists: what is done, what moves, what waits, what is wrong. */
export const ORDER = [
  "finished", "skipped", "running", "claimed ahead", "left behind", "decided", "runnable",
  "delayed", "gated", "waiting", "being defined", "dead", "failed",
];

export const wordOf = (state) => KNOWN[state]?.[1] ?? String(state);

/** The class that gives a state its colour; a state that this page does not know has a plain one. */
export const classOf = (state) => (state in KNOWN ? `of-${state.replaceAll(" ", "-")}` : "of-unknown");

export function Shape({ state }) {
  return html`<svg class="shape ${classOf(state)}" viewBox="0 0 16 16" aria-hidden="true">${SHAPES[KNOWN[state]?.[0] ?? "dashed"]()}</svg>`;
}

export function State({ state, badge, word }) {
  return html`<span class="state ${classOf(state)} ${badge ? "badge" : ""}"><${Shape} state=${state} />${word ?? wordOf(state)}</span>`;
}
