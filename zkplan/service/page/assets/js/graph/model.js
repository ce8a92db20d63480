// What the graph of a plan is made of: tasks, the boxes that they are in, and their states.
//
// The service tells what is left of a plan: a finished task is in its graph no more. The model keeps
// what it has seen, so that a box fills up while its tasks finish, and stays where it is.

import { count } from "../format.js";
import { wordOf } from "../states.js";
import { boxesOf, groupedBy, levelsOf, nameOf, partsOf } from "./boxes.js";

const TOLD_MAX = 20_000;
/** Around an open box so many others are drawn at most: those with the most edges to it. */
const AROUND_MAX = 6;

export class GraphModel {
  #tasks = new Map(); // number -> {number, name, function, state, level, at, group}
  #edges = []; // of single tasks: the places `at` of both ends, one after the other
  #known = new Set(); // of single tasks: each edge as one number
  #ways = new Map(); // "from to" -> [from, to, count]: of groups that the service made
  #groups = new Map(); // id -> by how much more tasks it has than are known: of groups that the service made
  #areSingle = true;
  #trail = []; // the ids of the box that is open and of those around it, the widest first
  #drawn = null; // the boxes and edges, while neither tasks nor the trail change
  #told = new Map(); // number -> {state, at}: what events told, and when

  /** Take an answer of the service, and when it was asked for, by the clock of `follow`. */
  load(data, begun) {
    const isFirst = this.#tasks.size === 0;
    if (data.grouped) this.#loadGroups(data, isFirst);
    else this.#loadTasks(data);
    this.#drawn = null;
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
      else this.#add({ number: node.numbers[0], name: node.name, function: node.function, state: node.state, level: 0 });
    }
    if (!this.#areSingle) { // it was larger once: its groups and edges are those that the service made
      for (const task of this.#tasks.values()) if (!task.group) this.#join(task, `${task.function} later`);
      return;
    }
    for (const { source, target } of edges) this.#tie(this.#tasks.get(source), this.#tasks.get(target));
    const levels = levelsOf(this.#tasks.size, this.#edges);
    const tied = new Uint8Array(this.#tasks.size);
    for (const at of this.#edges) tied[at] = 1;
    // Edges that went while the graph was read leave tasks without any: they belong to their like.
    const homes = new Map();
    for (const task of this.#tasks.values()) if (tied[task.at]) homes.set(task.function, levels[task.at]);
    for (const task of this.#tasks.values()) task.level = tied[task.at] ? levels[task.at] : homes.get(task.function) ?? 0;
  }

  #tie(from, to) {
    if (!from || !to) return;
    const edge = from.at * 2 ** 26 + to.at;
    if (this.#known.has(edge)) return;
    this.#known.add(edge);
    this.#edges.push(from.at, to.at);
  }

  #loadGroups({ nodes, edges }, isFirst) {
    if (!isFirst && this.#areSingle) {
      for (const task of this.#tasks.values()) this.#join(task, `${task.function} ${task.level}`);
    }
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
        else this.#join(this.#add({ number, name: null, function: node.function, state: node.state, level: 0 }), id);
      }
      if (this.#groups.has(id) && node.numbers.length) this.#groups.set(id, Math.max(1, node.count / node.numbers.length));
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
    task.at = this.#tasks.size;
    this.#tasks.set(task.number, task);
    return task;
  }

  #join(task, id) {
    if (!this.#groups.has(id)) this.#groups.set(id, 1);
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

  /** Whether a box opens into parts: not where the service made the groups. */
  get canOpen() {
    return this.#areSingle;
  }

  /** Show what is in a box, with what its tasks have edges to. */
  open(id) {
    this.#trail.push(id);
    this.#drawn = null;
  }

  /** Show so many of the boxes around as open ones. */
  close(depth) {
    this.#trail.length = depth;
    this.#drawn = null;
  }

  /** The nodes and edges to draw, the `trail` of titles of open boxes, and how many `more` are tied to what is open. */
  picture() {
    this.#drawn ??= this.#areSingle ? this.#drawTasks() : this.#drawGroups();
    const { boxes, edges, trail, more } = this.#drawn;
    return { nodes: boxes.map((box) => drawn(box, this.#groups.get(box.id) ?? 1)), edges, trail, more };
  }

  #drawTasks() {
    let parts = boxesOf([...this.#tasks.values()]);
    const around = [];
    const trail = [];
    for (const id of this.#trail) {
      const open = parts.find((box) => box.id === id && !box.isOne);
      if (!open) break; // the graph has grown: what was open is divided otherwise
      trail.push(open.title);
      around.push(...parts.filter((box) => box !== open));
      parts = partsOf(open);
    }
    this.#trail.length = trail.length;
    const boxes = [...parts, ...around];
    const home = new Int32Array(this.#tasks.size).fill(-1);
    boxes.forEach(({ tasks }, at) => {
      for (const task of tasks) home[task.at] = at;
    });
    const sums = new Map();
    for (let at = 0; at < this.#edges.length; at += 2) {
      const [a, b] = [home[this.#edges[at]], home[this.#edges[at + 1]]];
      if (a !== b && a >= 0 && b >= 0) sums.set(a * boxes.length + b, (sums.get(a * boxes.length + b) ?? 0) + 1);
    }
    const edges = [...sums].map(([way, many]) => ({ from: boxes[Math.floor(way / boxes.length)].id, to: boxes[way % boxes.length].id, count: many }));
    if (trail.length === 0) return { boxes, edges, trail, more: 0 };
    const inner = new Set(parts.map((box) => box.id));
    const ties = new Map(around.map((box) => [box.id, 0]));
    for (const { from, to, count } of edges) {
      if (inner.has(from) && ties.has(to)) ties.set(to, ties.get(to) + count);
      if (inner.has(to) && ties.has(from)) ties.set(from, ties.get(from) + count);
    }
    const tied = around.filter((box) => ties.get(box.id) > 0).sort((a, b) => ties.get(b.id) - ties.get(a.id));
    const beside = tied.slice(0, AROUND_MAX).map((box) => ({ ...box, isBeside: true }));
    const drawn = new Set([...inner, ...beside.map((box) => box.id)]);
    const shown = edges.filter(({ from, to }) => (inner.has(from) || inner.has(to)) && drawn.has(from) && drawn.has(to));
    return { boxes: [...parts, ...beside], edges: shown, trail, more: tied.length - beside.length };
  }

  #drawGroups() {
    const found = groupedBy([...this.#tasks.values()], (task) => task.group);
    const boxes = [...found].map(([id, tasks]) => ({ id, isOne: false, title: nameOf(tasks[0].function), tasks }));
    const edges = [...this.#ways.values()].filter(([from, to]) => found.has(from) && found.has(to));
    return { boxes, edges: edges.map(([from, to, many]) => ({ from, to, count: many })), trail: [], more: 0 };
  }
}

/** A box with the states of its tasks as they are now. */
function drawn(box, scale) {
  const counts = {};
  for (const { state } of box.tasks) counts[state] = (counts[state] ?? 0) + scale;
  for (const state of Object.keys(counts)) counts[state] = Math.round(counts[state]);
  const all = Math.round(box.tasks.length * scale);
  return { ...box, counts, all, note: box.isOne ? `task ${box.tasks[0].number} · ${wordOf(box.tasks[0].state)}` : noteOf(counts, all) };
}

/** What is most worth to be known of a box: what is dead in it, or what moves. */
function noteOf(counts, all) {
  const left = all - (counts.finished ?? 0);
  if (!left) return `all ${count(all)} finished`;
  if (counts.dead) return `${count(left)} left · ${count(counts.dead)} dead`;
  if (counts.running) return `${count(left)} left · ${count(counts.running)} running`;
  return `${count(left)} left`;
}
