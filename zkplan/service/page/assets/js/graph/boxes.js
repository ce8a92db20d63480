// How tasks share boxes: alike ones in one, which opens into parts, and at last into its tasks.

import { count } from "../format.js";

/** With more tasks, or with more of them side by side, alike ones share a box. */
const SINGLE_MAX = 60;
const BESIDE_MAX = 12;
/** With more boxes, neighbouring levels share them. */
const BOXES_MAX = 24;
/** A box opens into so many parts at most: more of them side by side could not be read. */
const PARTS_MAX = 12;
/** Of levels fewer, since they stand one behind the other. */
const LEVELS_MAX = 6;

/** A task by itself. */
const single = (task, place = { band: task.level, share: 1 }) => ({ id: `task ${task.number}`, isOne: true, title: task.name ?? nameOf(task.function), tasks: [task], ...place });

/** A place tells which boxes lie before others: `band` is larger the more is behind a box, and its
 * parts have a `share` of the way to the next band. */
function boxOf(id, tasks, place, title = titleOf(tasks)) {
  return tasks.length === 1 ? single(tasks[0], place) : { id, isOne: false, title, tasks, ...place };
}

/** The place of a part in a box: the first of so many has the most behind it. */
const within = ({ band, share }, at, many) => ({ band: band + (share * (many - 1 - at)) / many, share: share / many });

/** The boxes of all tasks [{number, name, function, level}]: by function and level, or each by itself
 * where there are few. */
export function boxesOf(tasks) {
  const ofLevels = groupedBy(tasks, (task) => task.level);
  const widest = Math.max(0, ...[...ofLevels.values()].map((found) => found.length));
  if (tasks.length <= SINGLE_MAX && widest <= BESIDE_MAX) return tasks.map((task) => single(task));
  // From the end: the first band has the last tasks, and stays the same while a plan runs.
  const kinds = [...ofLevels]
    .sort(([a], [b]) => a - b)
    .flatMap(([, found], place) => [...groupedBy(found, (task) => task.function)].map(([name, theirs]) => ({ name, place, theirs })));
  for (let wide = 1; ; wide += 1) {
    const bandOf = ({ place }) => Math.floor(place / wide);
    const found = groupedBy(kinds, (kind) => `${kind.name} ${bandOf(kind)}`);
    if (found.size <= BOXES_MAX || wide >= ofLevels.size) return [...found].map(([id, some]) => boxOf(id, some.flatMap(({ theirs }) => theirs), { band: bandOf(some[0]), share: 1 }));
  }
}

/** What a box opens into: its tasks where they are few, else runs of them, by level or by number. */
export function partsOf(box) {
  const levels = groupedBy(box.tasks, (task) => task.level);
  const order = [...levels.keys()].sort((a, b) => b - a);
  if (box.tasks.length <= PARTS_MAX) return box.tasks.map((task) => single(task, within(box, order.indexOf(task.level), order.length)));
  if (order.length > 1) {
    const found = runs(order, LEVELS_MAX);
    return found.map((run, at) => boxOf(`${box.id}/${at}`, run.flatMap((level) => levels.get(level)), within(box, at, found.length)));
  }
  const inOrder = [...box.tasks].sort((a, b) => a.number - b.number);
  let from = 1;
  return runs(inOrder, PARTS_MAX).map((run, at) => {
    const title = `${box.title.replace(/ [\d,]+–[\d,]+$/, "")} ${count(from)}–${count(from + run.length - 1)}`;
    from += run.length;
    return boxOf(`${box.id}/${at}`, run, { band: box.band, share: box.share }, title);
  });
}

/** A list as at most so many runs of nearly the same length. */
function runs(list, most) {
  const parts = Math.min(most, list.length);
  return Array.from({ length: parts }, (_, at) => list.slice(Math.ceil((at * list.length) / parts), Math.ceil(((at + 1) * list.length) / parts)));
}

export function groupedBy(list, keyOf) {
  const found = new Map();
  for (const each of list) {
    const key = keyOf(each);
    if (found.has(key)) found.get(key).push(each);
    else found.set(key, [each]);
  }
  return found;
}

/** What the tasks of a group have in common: the beginning of their names, or their function. */
export function titleOf(tasks) {
  let common = tasks[0].name ?? "";
  for (const { name } of tasks) {
    while (common && !name?.startsWith(common)) common = common.slice(0, -1);
    if (!common) break;
  }
  common = common.replace(/[\s\d._\-:/([#]+$/, "");
  return common.length >= 3 ? common : nameOf(tasks[0].function);
}

/** A function without its module, and without how it travels. */
export const nameOf = (called) => called.replace(/ \(by value\)$/, "").split(/[.:]/).at(-1) || called;

/** How many edges lie behind each of so many tasks, along the longest way to an end; a cycle is left
 * where it is. `ways` are pairs of places, one after the other. What is before a task goes as it
 * finishes, what is behind it stays: so it is counted from there. */
export function levelsOf(many, ways) {
  const levels = new Int32Array(many);
  const missing = new Int32Array(many);
  const begin = new Int32Array(many + 1); // where the sources of each task begin in `sources`
  for (let at = 0; at < ways.length; at += 2) {
    missing[ways[at]] += 1;
    begin[ways[at + 1] + 1] += 1;
  }
  for (let at = 0; at < many; at += 1) begin[at + 1] += begin[at];
  const next = begin.slice();
  const sources = new Int32Array(ways.length / 2);
  for (let at = 0; at < ways.length; at += 2) {
    sources[next[ways[at + 1]]] = ways[at];
    next[ways[at + 1]] += 1;
  }
  const ready = [];
  for (let at = 0; at < many; at += 1) if (missing[at] === 0) ready.push(at);
  for (const to of ready) { // it grows
    for (let at = begin[to]; at < begin[to + 1]; at += 1) {
      const from = sources[at];
      levels[from] = Math.max(levels[from], levels[to] + 1);
      missing[from] -= 1;
      if (missing[from] === 0) ready.push(from);
    }
  }
  return levels;
}
