// The root at a glance, for all views: active plans by number, and sums, as events tell them.

import { listen } from "./live.js";
import { login } from "./api.js";
import { Watched } from "./store.js";

/** {plans: Map, workers, slots, held, rate, failed, dead}; null until the first event. */
export const overview = new Watched(null);

/** Grows with each event: what reads anew when something has changed watches it. */
export const pulse = new Watched(0);

/** Whether an active plan has work, and none of it runs or has just ended. */
export const standsStill = (plan) => plan.state === "running" && plan.tasks > 0 && plan.running === 0 && plan.ahead === 0 && plan.rate === 0;

let stop = null;

login.watch((told) => {
  stop?.();
  stop = told ? listen("events", take) : null;
  if (!told) overview.set(null);
});

function take(name, facts) {
  if (name !== "root") return;
  const plans = new Map(facts.whole ? [] : overview.value?.plans);
  for (const plan of facts.plans) plans.set(plan.number, plan);
  for (const number of facts.ended) plans.delete(number);
  const dead = [...plans.values()].reduce((sum, plan) => sum + plan.dead, facts.failed_dead);
  overview.set({ ...facts, plans, dead });
  pulse.set(pulse.value + 1);
}
