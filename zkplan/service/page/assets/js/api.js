// Requests to the service: the token of the login, refusals that say why, and whether it answers.

import { Watched } from "./store.js";

const BASE = new URL("v1/", document.baseURI);
const KEPT = "zkplan-token";

/** Of the login: null until somebody is logged in, then {roles, root, …} as the service said. */
export const login = new Watched(null);

/** Whether the service and ZooKeeper answer: "" if so, else a sentence that says what does not. */
export const away = new Watched("");

let token = tokenOfAddress() || (sessionStorage.getItem(KEPT) ?? "");

/** `zkplan serve` prints an address with a token behind "#", which a browser sends to nobody. */
function tokenOfAddress() {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1] ?? "";
  // Neither a bookmark nor a shared address may hold it.
  if (given) history.replaceState(null, "", "#/plans");
  return given;
}

/** A refusal, or no answer: `title` says what happened, `detail` what to do; `kind` is for programs.
 * `status` is 0 without an answer. */
export class Refused extends Error {
  constructor(status, title, detail = "", kind = "") {
    super(title);
    Object.assign(this, { status, title, detail, kind });
  }
}

export const mayDo = (role) => login.value?.roles?.includes(role) ?? false;

/** Log in with a token; raises Refused where the service does not know it. */
export async function logIn(given) {
  token = given;
  try {
    const told = await ask("GET", "caller");
    sessionStorage.setItem(KEPT, given);
    login.set(told);
  } catch (error) {
    if (error.status === 401 || error.status === 403) token = "";
    throw error;
  }
}

/** Try the token that this window has kept, if any; whether it serves. */
export async function logInAgain() {
  await logIn(token);
}

export const hasToken = () => token !== "";

export function logOut() {
  token = "";
  sessionStorage.removeItem(KEPT);
  login.set(null);
}

const headers = (more = {}) => (token ? { authorization: `Bearer ${token}`, ...more } : more);

/** The address of a path below /v1, with its query; parts that are null are left out. */
export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** Send a request and return the answer of fetch; raises Refused for all but success and 304. */
export async function send(method, path, { query, body, more, signal } = {}) {
  let answer;
  const sent = body === undefined ? {} : { "content-type": "application/json" };
  try {
    answer = await fetch(address(path, query), {
      method,
      headers: headers({ ...sent, ...more }),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    away.set("The service does not answer. Trying again …");
    throw new Refused(0, "The service does not answer.", "This page tries again by itself.");
  }
  if (answer.ok || answer.status === 304) {
    away.set("");
    return answer;
  }
  throw await refusal(answer);
}

/** What to say of a problem of the service that passes by itself. */
export function awayBecause(told) {
  const isZooKeeper = String(told.type ?? "").includes("zookeeper");
  return `${isZooKeeper ? "ZooKeeper does not answer the service." : "The service cannot answer now."} Trying again …`;
}

async function refusal(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // Not of zkplan, but of a proxy before it: the status has to do.
  }
  const kind = String(told.type ?? "").split(":").at(-1);
  if (answer.status === 401) logOut();
  away.set([502, 503, 504].includes(answer.status) ? awayBecause(told) : "");
  const title = told.detail || `The service answered ${answer.status}.`;
  return new Refused(answer.status, title, told.todo ?? "", kind);
}

export async function ask(method, path, options) {
  const answer = await send(method, path, options);
  return answer.status === 204 ? null : answer.json();
}

/** Act with a POST: what can be done here may be done twice without harm. */
export const act = (path, body) => ask("POST", path, { body });
