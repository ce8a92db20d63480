// Where the reader is: the part of the address behind "#", a path and a query.

import { Watched } from "./store.js";

function read() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts: parts.length ? parts : ["plans"], query: new URLSearchParams(query ?? "") };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a "%" that somebody typed
  }
}

export const place = new Watched(read());
addEventListener("hashchange", () => place.set(read()));

/** The address of a view: to(["plans", 17], {state: "dead"}). */
export function to(parts, query = {}) {
  const path = parts.map(encodeURIComponent).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== "" && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Change the query of where we are without a new entry in the history, as filters do. */
export function narrow(change) {
  const { parts, query } = place.value;
  history.replaceState(null, "", to(parts, { ...Object.fromEntries(query), ...change }));
  place.set(read());
}
