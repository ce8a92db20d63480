// Draws the graph of a plan: a box for tasks of one function on one level, or for one task.

import { html, useMemo, useRef, useState } from "../ui.js";
import { count } from "../format.js";
import { ORDER, classOf, wordOf } from "../states.js";
import { HEIGHT, WIDTH, heightMax, useLayout } from "./layout.js";
import { useView } from "./view.js";

const INNER = WIDTH - 24;
/** The buttons beside the graph need so much. */
const HEIGHT_MIN = 200;
/** Of more edges only so many are drawn: the heaviest. */
export const DRAWN_MAX = 60;

/**
 * `nodes`: [{id, title, note, counts, all, isOne, isBeside}], `edges`: [{from, to, count}]. `chosen` is the id of the node
 * that is shown below the graph; `onChoose(node)` is called for another, `onOpen(node)` to see what is in a node, where
 * that can be. `depth` is how deep the picture is: with another one it is shown whole.
 */
export function Graph({ nodes, edges, chosen, onChoose, onOpen, depth }) {
  const frame = useRef(null);
  const made = useLayout(nodes, edges, frame);
  const view = useView(frame, made, depth);
  const [current, setCurrent] = useState(null);
  const placed = made ? nodes.filter((node) => made.nodes[node.id]) : [];
  const focused = placed.some((node) => node.id === current) ? current : placed[0]?.id;

  const focus = (id) => {
    setCurrent(id);
    view.show(made.nodes[id]);
    frame.current.querySelector(`[data-node="${CSS.escape(id)}"]`)?.focus();
  };
  const keys = (event, node) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onChoose(node);
      return;
    }
    if (event.key === "+" && onOpen && !node.isOne) {
      event.preventDefault();
      onOpen(node);
      return;
    }
    const id = nextNode(event.key, node.id, placed, made);
    if (id === undefined) return;
    event.preventDefault();
    focus(id);
  };
  // To move or zoom the picture draws nothing anew.
  const picture = useMemo(
    () => made && html`
      <${Edges} edges=${edges} made=${made} />
      ${placed.map((node) => html`<${Node} key=${node.id} node=${node} at=${made.nodes[node.id]} isOpen=${node.id === chosen} isStop=${node.id === focused} onChoose=${() => onChoose(node)} onOpen=${onOpen && !node.isOne && !node.isBeside ? () => onOpen(node) : null} onFocus=${() => setCurrent(node.id)} onKey=${(event) => keys(event, node)} />`)}`,
    [nodes, edges, made, chosen, focused],
  );

  const { x, y, scale } = view.box ?? { x: 0, y: 0, scale: 1 };
  const height = made ? Math.min(heightMax(), Math.max(HEIGHT_MIN, made.height + 24)) : heightMax();
  return html`<div class="graph" ref=${frame} style=${{ height: `${height}px` }} ...${view.handlers}>
    <svg role="group" aria-label=${`Graph of ${count(nodes.length)} boxes. Arrow keys move, Enter shows a box, plus opens it.`}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="arrow-head" d="M0 0.5 8 4 0 7.5z" /></marker></defs>
      ${made && view.box && html`<g transform=${`translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`}>${picture}</g>`}
    </svg>
    ${!(made && view.box) && html`<div class="wait"><span><span class="spin" aria-hidden="true" /> Laying out …</span></div>`}
    <div class="tools">
      <button class="button" type="button" aria-label="Zoom in" onClick=${() => view.zoom(1.35)}>+</button>
      <button class="button" type="button" aria-label="Zoom out" onClick=${() => view.zoom(1 / 1.35)}>−</button>
      <button class="button" type="button" aria-label="Show the whole graph" title="Show the whole graph" onClick=${view.whole}>⤢</button>
    </div>
  </div>`;
}

function Node({ node, at, isOpen, isStop, onChoose, onOpen, onFocus, onKey }) {
  const parts = ORDER.filter((state) => node.counts[state] > 0);
  const told = parts.map((state) => `${count(node.counts[state])} ${wordOf(state)}`).join(", ");
  const dead = node.counts.dead || node.counts.failed;
  const [left, top] = [at[0] - WIDTH / 2, at[1] - HEIGHT / 2];
  let start = 0;
  return html`<g class="node ${isOpen ? "is-open" : ""} ${dead ? "of-dead" : ""} ${node.isBeside ? "is-beside" : ""}" data-node=${node.id} transform=${`translate(${left} ${top})`} role="button" tabindex=${isStop ? 0 : -1} aria-pressed=${isOpen ? "true" : "false"} aria-label=${`${node.title}: ${told}`} onClick=${onChoose} onFocus=${onFocus} onKeyDown=${onKey}>
    <title>${`${node.title}\n${told}`}</title>
    ${!node.isOne && html`<rect class="back" x="5" y="5" width=${WIDTH} height=${HEIGHT} rx="7" />`}
    <rect class="box" width=${WIDTH} height=${HEIGHT} rx="7" />
    <text x="12" y="21">${cut(node.title, onOpen ? INNER - 18 : INNER)}</text>
    <text class="count" x="12" y="38">${node.note}</text>
    <rect class="rest" x="12" y="47" width=${INNER} height="6" rx="2" />
    ${onOpen && html`<g class="into" onClick=${(event) => { event.stopPropagation(); onOpen(); }}><title>Open this box in the graph</title><rect x=${WIDTH - 27} y="6" width="21" height="21" rx="5" /><path d=${`M${WIDTH - 21} 16.5h9M${WIDTH - 16.5} 12v9`} /></g>`}
    ${parts.map((state) => {
      const width = (INNER * node.counts[state]) / (node.all || 1);
      const part = html`<rect key=${state} class="part ${classOf(state)}" x=${12 + start} y="47" width=${Math.max(width, 1.5)} height="6" rx="1" />`;
      start += width;
      return part;
    })}
  </g>`;
}

function Edges({ edges, made }) {
  // A layout may be one change behind the data: what it does not know has no way yet.
  if (made.isOld || made.edges.length !== edges.length) return null;
  const least = edges.filter((_, at) => made.edges[at]).map((edge) => edge.count).sort((a, b) => b - a)[DRAWN_MAX - 1] ?? 0;
  let left = DRAWN_MAX;
  return edges.map((edge, at) => {
    const points = made.edges[at];
    if (!points || edge.count < least || left-- <= 0) return null;
    const middle = points[Math.floor(points.length / 2)];
    return html`<g key=${`${edge.from} ${edge.to}`}>
      <path class="edge" d=${curve(points)} marker-end="url(#head)" />
      ${edge.count > 1 && points.length > 2 && html`<text class="edge-count" x=${middle[0]} y=${middle[1] + 4} text-anchor="middle">${count(edge.count)}</text>`}
    </g>`;
  });
}

/** A smooth way through the points: straight ends, curves around what lies between. */
function curve(points) {
  let way = `M${points[0]}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [x, y] = points[at];
    const [nextX, nextY] = points[at + 1];
    const end = at === points.length - 2 ? [nextX, nextY] : [(x + nextX) / 2, (y + nextY) / 2];
    way += `Q${x} ${y} ${end[0]} ${end[1]}`;
  }
  return points.length === 2 ? `${way}L${points[1]}` : way;
}

const measure = document.createElement("canvas").getContext("2d");

const cuts = new Map();

/** As much of a title as there is room for. */
function cut(title, room) {
  const key = `${room} ${title}`;
  if (cuts.size > 2000) cuts.clear();
  if (!cuts.has(key)) cuts.set(key, shortened(title, room));
  return cuts.get(key);
}

function shortened(title, room) {
  measure.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  if (measure.measureText(title).width <= room) return title;
  const letters = [...title.slice(0, 80)];
  while (letters.length > 1 && measure.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** The nearest node in the direction of an arrow key; undefined for other keys and at the edge. */
function nextNode(key, from, nodes, made) {
  if (key === "Home") return nodes[0]?.id;
  if (key === "End") return nodes.at(-1)?.id;
  const way = WAYS[key];
  if (!way) return undefined;
  const [x, y] = made.nodes[from];
  let best;
  for (const { id } of nodes) {
    const [dx, dy] = [made.nodes[id][0] - x, made.nodes[id][1] - y];
    const along = dx * way[0] + dy * way[1];
    const across = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    const far = along + 2.5 * across;
    if (along > 8 && (!best || far < best.far)) best = { id, far };
  }
  return best?.id;
}
