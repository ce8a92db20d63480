// Numbers, moments and spans of time as people read them.

const whole = new Intl.NumberFormat("en");

export const count = (number) =>
  number === null || number === undefined ? "–" : whole.format(number);

/** "1 task", "12 tasks". */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function rate(number) {
  if (number === null || number === undefined) return "–";
  return number >= 100 ? count(Math.round(number)) : number.toFixed(1);
}

export function percent(part, all) {
  if (!all) return "–";
  // Never "100 %" while something is left.
  const exact = (100 * part) / all;
  return `${part < all ? Math.min(99, Math.floor(exact)) : 100} %`;
}

/** A span of seconds in its two largest units: "3 h 12 min". */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A span that is only foreseen: no seconds in what is minutes away. */
export const ahead = (seconds) => (seconds >= 600 && seconds < 3600 ? `${Math.round(seconds / 60)} min` : span(seconds));

/** How long ago something was, in its largest unit: "3 h ago". It changes seldom, so a table keeps its widths. */
export function ago(seconds) {
  const told = span(Math.max(seconds, 10)).split(" ").slice(0, 2).join(" ");
  return seconds < 10 ? "just now" : `${told} ago`;
}

/** A moment, which the service gives in seconds since 1970 or as text of ISO 8601, in ms. */
export function moment(given) {
  if (given === null || given === undefined || given === "") return null;
  const at = typeof given === "number" ? given * 1000 : Date.parse(given);
  return Number.isNaN(at) ? null : at;
}

const pad = (number) => String(number).padStart(2, "0");

/** "2026-11-25 17:53:34", in the time of the reader. */
export function dateTime(given) {
  const ms = moment(given);
  if (ms === null) return "–";
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** Seconds that have passed since a moment; negative where it is still to come. */
export const passed = (given, now = Date.now()) => {
  const ms = moment(given);
  return ms === null ? null : (now - ms) / 1000;
};

/** A number as it is said: znodes carry ten digits, people say 17. */
export const short = (number) => {
  const digits = String(number).replace(/^0+(?=\d)/, "");
  return digits || String(number);
};
