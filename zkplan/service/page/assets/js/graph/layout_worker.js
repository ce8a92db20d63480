// Lays out a graph beside the page, which stays quick meanwhile.

import { Graph, layout } from "../../vendor/dagre/dagre.js";

/** With more edges boxes stand in columns, by how much is behind them: dagre would take a second, and wind them. */
const EDGES_MAX = 48;
const GAP = { column: 72, row: 22, margin: 14 };

self.onmessage = ({ data: { ask, nodes, bands, edges, frame, box } }) => {
  if (edges.length > EDGES_MAX) return void self.postMessage({ ask, ...inColumns(nodes, bands, edges, box) });
  const across = laidOut(nodes, edges, box, "LR");
  const down = laidOut(nodes, edges, box, "TB");
  return void self.postMessage({ ask, ...(fit(down, frame) > 1.15 * fit(across, frame) ? down : across) });
};

function inColumns(nodes, bands, edges, [width, height]) {
  const columns = new Map([...new Set(bands)].sort((a, b) => b - a).map((band) => [band, []]));
  nodes.forEach((id, at) => columns.get(bands[at]).push(id));
  const tallest = Math.max(...[...columns.values()].map((ids) => ids.length));
  const placed = {};
  [...columns.values()].forEach((ids, column) => {
    ids.forEach((id, row) => {
      const y = (row + (tallest - ids.length) / 2 + 0.5) * (height + GAP.row) + GAP.margin;
      placed[id] = [GAP.margin + width / 2 + column * (width + GAP.column), y];
    });
  });
  // Between boxes of one column edges go both ways: they would hide what leads on.
  return {
    nodes: placed,
    edges: edges.map(([from, to]) => (placed[from][0] === placed[to][0] ? null : way(placed[from], placed[to], width))),
    width: columns.size * (width + GAP.column) - GAP.column + 2 * GAP.margin,
    height: tallest * (height + GAP.row) + 2 * GAP.margin,
  };
}

/** Straight from the side of one box to that of another. */
function way([x, y], [toX, toY], width) {
  return [[x + width / 2, y], [toX - width / 2, toY]];
}

function laidOut(nodes, edges, [width, height], rankdir) {
  const graph = new Graph();
  graph.setGraph({ rankdir, nodesep: 18, ranksep: rankdir === "TB" ? 44 : 72, marginx: 14, marginy: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  // Of what is side by side dagre puts the last one first.
  for (const id of [...nodes].reverse()) graph.setNode(id, { width, height });
  for (const [from, to] of [...edges].reverse()) graph.setEdge(from, to);
  layout(graph);
  const placed = Object.fromEntries(nodes.map((id) => [id, [graph.node(id).x, graph.node(id).y]]));
  // dagre ends an edge where it meets the box, which may be beside or above it: an arrow goes in at the front.
  const [aside, below] = rankdir === "TB" ? [0, height / 2] : [width / 2, 0];
  const between = (from, to) => graph.edge(from, to).points.slice(1, -1).map(({ x, y }) => [x, y]);
  const [out, into] = [([x, y]) => [x + aside, y + below], ([x, y]) => [x - aside, y - below]];
  return {
    nodes: placed,
    edges: edges.map(([from, to]) => [out(placed[from]), ...between(from, to), into(placed[to])]),
    width: graph.graph().width,
    height: graph.graph().height,
  };
}

/** How large it can be drawn in the frame, at most as it is. */
const fit = ({ width, height }, frame) => Math.min(1, frame[0] / width, frame[1] / height);
