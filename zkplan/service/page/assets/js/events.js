// The events of one task, read page by page: the latest are kept, the latest first.

/** So many events are shown; the service gives more in one page. */
export const SHOWN_MAX = 200;
export const PAGE = 500;

export const NO_EVENTS = { events: [], isCut: false, cursor: null };

/**
 * What is kept, once a page has been read that begins at its cursor: `cursor` is where the next page
 * begins. `isCut`: earlier events are left out. A task that runs long tells again and again what it
 * has printed: only the last time of each attempt stays.
 */
export function withPage(kept, page) {
  const told = new Set();
  const isLast = ({ kind, attempt }) => kind !== "printed" || (!told.has(attempt) && Boolean(told.add(attempt)));
  const events = [...[...page.items].reverse(), ...kept.events].filter(isLast);
  return { events: events.slice(0, SHOWN_MAX), isCut: kept.isCut || events.length > SHOWN_MAX, cursor: page.next ?? kept.cursor };
}
