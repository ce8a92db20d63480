// What the graph of a plan is made of: tasks, the groups that they are in, and their states.
//
// The service tells what is left of a plan: a finished task is in its graph no more. The model keeps
// what it has seen, so that a box fills up while its tasks finish, and stays where it is.

import { count } from "../format.js";
import { wordOf } from "../states.js";

/** With more tasks, or with more of them side by side, alike ones share a box. */
const SINGLE_MAX = 60;
const BESIDE_MAX = 12;
/** A group of so many tasks may be drawn task by task. */
const EXPAND_MAX = 120;
const TOLD_MAX = 20_000;

export class GraphModel {
  #tasks = new Map(); // number -> {number, name, function, state, group}
  #groups = new Map(); // id -> {id, function, level, numbers: Set, scale}
  #ways = new Map(); // "from to" -> [from, to, count]: of tasks, or of groups where single ones are not known
  #areSingle = true;
  #open = new Set();
  #told = new Map(); // number -> {state, at}: what events told, and when

  /** Take an answer of the service, and when it was asked for, by the clock of `follow`. */
  load(data, begun) {
    const isFirst = this.#tasks.size === 0;
    if (data.grouped) this.#loadGroups(data, isFirst);
    else this.#loadTasks(data);
    const left = new Set(data.nodes.flatMap((node) => node.numbers));
    // What is left no more has finished, also where no event told it.
    if (!data.sampled) for (const task of this.#tasks.values()) if (!left.has(task.number)) task.state = "finished";
    for (const [number, { state, at }] of this.#told) {
      const task = this.#tasks.get(number);
      if (task && at >= begun) task.state = state;
    }
    this.#told.clear();
  }

  #loadTasks({ nodes, edges }) {
    for (const node of nodes) {
      const old = this.#tasks.get(node.numbers[0]);
      if (old) Object.assign(old, { state: node.state, name: node.name });
      else this.#add({ number: node.numbers[0], name: node.name, function: node.function, state: node.state });
    }
    if (!this.#areSingle) { // it was larger once: its groups and edges are those that the service made
      for (const task of this.#tasks.values()) if (!task.group) this.#join(task, `${task.function} later`, null);
      return;
    }
    for (const { source, target } of edges) this.#ways.set(`${source} ${target}`, [source, target, 1]);
    // Counted from the end: what is before a task goes as it finishes, what is behind it stays.
    const levels = levelsOf(this.#tasks, [...this.#ways.values()].map(([from, to]) => [to, from]));
    this.#groups.clear();
    const tied = new Set([...this.#ways.values()].flatMap(([from, to]) => [from, to]));
    const loose = [];
    for (const task of this.#tasks.values()) {
      if (tied.has(task.number)) this.#join(task, `${task.function} ${levels.get(task.number)}`, levels.get(task.number));
      else loose.push(task);
    }
    // Edges that went while the graph was read leave tasks without any: they belong to their like.
    const homes = [...this.#groups.values()].sort((a, b) => b.numbers.size - a.numbers.size);
    for (const task of loose) {
      const home = homes.find((group) => group.function === task.function);
      this.#join(task, home?.id ?? `${task.function} 0`, home?.level ?? 0);
    }
  }

  #loadGroups({ nodes, edges }, isFirst) {
    if (!isFirst && this.#areSingle) this.#ways.clear();
    this.#areSingle = false;
    const groupOf = new Map();
    for (const node of nodes) {
      // The level of what is left sinks as tasks finish: a group is known by the tasks in it.
      const known = node.numbers.map((number) => this.#tasks.get(number)?.group).find(Boolean);
      const id = known ?? `${node.function} ${node.level}`;
      groupOf.set(node.id, id);
      for (const number of node.numbers) {
        const old = this.#tasks.get(number);
        if (old) old.state = node.state;
        else this.#join(this.#add({ number, name: null, function: node.function, state: node.state }), id, node.level);
      }
      const group = this.#groups.get(id);
      if (group && node.numbers.length) group.scale = Math.max(1, node.count / node.numbers.length);
    }
    const sums = new Map();
    for (const { source, target, count } of edges) {
      const [from, to] = [groupOf.get(source), groupOf.get(target)];
      if (from === to || !this.#groups.has(from) || !this.#groups.has(to)) continue;
      const way = `${from} ${to}`;
      sums.set(way, [from, to, (sums.get(way)?.[2] ?? 0) + count]);
    }
    // Edges go as results arrive: the most that was seen is what there is.
    for (const [way, sum] of sums) if (!(this.#ways.get(way)?.[2] > sum[2])) this.#ways.set(way, sum);
  }

  #add(task) {
    this.#tasks.set(task.number, task);
    return task;
  }

  #join(task, id, level) {
    if (!this.#groups.has(id)) this.#groups.set(id, { id, function: task.function, level, numbers: new Set(), scale: 1 });
    this.#groups.get(id).numbers.add(task.number);
    task.group = id;
  }

  /** Take an event of the plan; whether the graph has to be read anew, as for tasks that are new. */
  follow(facts, now) {
    let isStale = facts.whole || facts.more > 0;
    if (this.#told.size > TOLD_MAX) this.#told.clear(); // nobody has read a graph for long
    for (const { number, state } of facts.tasks) {
      this.#told.set(number, { state, at: now });
      const task = this.#tasks.get(number);
      if (task) task.state = state;
      else isStale ||= state !== "finished";
    }
    // What has ended leaves nothing to read: all that is known has finished.
    if (facts.added === facts.finished) for (const task of this.#tasks.values()) task.state = "finished";
    return isStale && this.#tasks.size > 0;
  }

  canExpand(id) {
    return this.#areSingle && (this.#groups.get(id)?.numbers.size ?? Infinity) <= EXPAND_MAX;
  }

  expand(id) {
    this.#open.add(id);
  }

  get canClose() {
    return this.#open.size > 0;
  }

  closeAll() {
    this.#open.clear();
  }

  /** How many tasks the level with the most of them has. */
  #widest() {
    const found = new Map();
    for (const { level, numbers } of this.#groups.values()) found.set(level, (found.get(level) ?? 0) + numbers.size);
    return Math.max(0, ...found.values());
  }

  /** The nodes and edges to draw. */
  picture() {
    const areAllOne = this.#areSingle && this.#tasks.size <= SINGLE_MAX && this.#widest() <= BESIDE_MAX;
    const nodeOf = (task) => (areAllOne || this.#open.has(task.group) || this.#groups.get(task.group).numbers.size === 1 ? `task ${task.number}` : task.group);
    const nodes = new Map();
    for (const task of this.#tasks.values()) {
      const id = nodeOf(task);
      if (!nodes.has(id)) nodes.set(id, { id, isOne: id !== task.group, tasks: [], group: this.#groups.get(task.group) });
      nodes.get(id).tasks.push(task);
    }
    const edges = new Map();
    for (const [from, to, count] of this.#ways.values()) {
      const [a, b] = this.#areSingle ? [nodeOf(this.#tasks.get(from)), nodeOf(this.#tasks.get(to))] : [from, to];
      if (a === b || !nodes.has(a) || !nodes.has(b)) continue;
      const way = `${a}\n${b}`;
      edges.set(way, { from: a, to: b, count: (edges.get(way)?.count ?? 0) + count });
    }
    return { nodes: [...nodes.values()].map(drawn), edges: [...edges.values()] };
  }
}

function drawn({ id, isOne, tasks, group }) {
  const counts = {};
  for (const { state } of tasks) counts[state] = (counts[state] ?? 0) + group.scale;
  for (const state of Object.keys(counts)) counts[state] = Math.round(counts[state]);
  const all = Math.round(tasks.length * group.scale);
  const numbers = tasks.map((task) => task.number);
  const note = isOne ? `task ${numbers[0]} · ${wordOf(tasks[0].state)}` : `${count(counts.finished ?? 0)} of ${count(all)} finished`;
  return { id, isOne, title: isOne ? tasks[0].name ?? nameOf(tasks[0].function) : titleOf(tasks), note, counts, all, numbers, tasks };
}

/** What the tasks of a group have in common: the beginning of their names, or their function. */
function titleOf(tasks) {
  const names = tasks.map((task) => task.name).filter(Boolean);
  if (names.length === tasks.length && names.length > 0) {
    let common = names[0];
    for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
    common = common.replace(/[\s\d._\-:/([#]+$/, "");
    if (common.length >= 3) return common;
  }
  return nameOf(tasks[0].function);
}

/** A function without its module. */
const nameOf = (called) => called.split(/[.:]/).at(-1) || called;

/** How many edges lie before each task along the longest way; a cycle is left where it is. */
function levelsOf(tasks, ways) {
  const levels = new Map([...tasks.keys()].map((number) => [number, 0]));
  const targets = new Map();
  const missing = new Map();
  for (const [from, to] of ways) {
    if (!targets.has(from)) targets.set(from, []);
    targets.get(from).push(to);
    missing.set(to, (missing.get(to) ?? 0) + 1);
  }
  const ready = [...tasks.keys()].filter((number) => !missing.has(number));
  for (const from of ready) { // it grows
    for (const to of targets.get(from) ?? []) {
      levels.set(to, Math.max(levels.get(to), levels.get(from) + 1));
      missing.set(to, missing.get(to) - 1);
      if (missing.get(to) === 0) ready.push(to);
    }
  }
  return levels;
}
