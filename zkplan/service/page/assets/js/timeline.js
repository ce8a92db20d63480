// What the time line draws of a task: when it was runnable, claimed, and running. Without a browser.

/** A task whose function runs now, as far as is told; not one whose result is being delivered. */
const isRunning = (row) => row.state === "running" && row.ended === null;

/** Where the picture ends: what runs has run until now, and not until the last event. */
export const endOf = (told, now) => (told.rows.some(isRunning) ? Math.max(told.last, now) : told.last);

/** What a task was in when: [[state, from, until]]. `last` is where the picture ends. */
export function pieces(row, last) {
  const earlier = row.earlier.map((each) => ["dead", each.started, each.ended]);
  return [...earlier, ...(row.ended === null ? unfinished(row, last) : ended(row))].filter(([, from, until]) => until > from);
}

function ended(row) {
  const end = row.ended;
  const start = row.started ?? end;
  const claimed = Math.min(row.claimed ?? start, start);
  const runnable = Math.min(row.runnable ?? claimed, claimed);
  return [["runnable", runnable, claimed], ["claimed-ahead", claimed, start], [row.error ? "dead" : "running", start, end]];
}

/** Of an attempt that was handed back nothing is drawn; an earlier one may have failed. */
function unfinished(row, last) {
  const found = row.started === null ? [] : [[row.error ? "dead" : "running", row.started, row.started + (row.ran ?? 0)]];
  const waited = isRunning(row) ? row.claimed : row.state === "runnable" ? last : null;
  if (row.runnable !== null && waited !== null) found.push(["runnable", row.runnable, waited]);
  if (isRunning(row)) found.push(["running", row.claimed ?? last, last]);
  return found;
}
