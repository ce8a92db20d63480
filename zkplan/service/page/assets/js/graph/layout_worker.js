// Lays out a graph beside the page, which stays quick meanwhile.

import { Graph, layout } from "../../vendor/dagre/dagre.js";

/** With more edges only one way is tried. */
const EDGES_MAX = 1500;

self.onmessage = ({ data: { ask, nodes, edges, frame, box } }) => {
  const across = laidOut(nodes, edges, box, "LR");
  const down = edges.length > EDGES_MAX ? across : laidOut(nodes, edges, box, "TB");
  self.postMessage({ ask, ...(fit(down, frame) > 1.15 * fit(across, frame) ? down : across) });
};

function laidOut(nodes, edges, [width, height], rankdir) {
  const graph = new Graph();
  graph.setGraph({ rankdir, nodesep: 18, ranksep: rankdir === "TB" ? 44 : 72, marginx: 14, marginy: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of nodes) graph.setNode(id, { width, height });
  for (const [from, to] of edges) graph.setEdge(from, to);
  layout(graph);
  return {
    nodes: Object.fromEntries(nodes.map((id) => [id, [graph.node(id).x, graph.node(id).y]])),
    edges: edges.map(([from, to]) => graph.edge(from, to).points.map(({ x, y }) => [x, y])),
    width: graph.graph().width,
    height: graph.graph().height,
  };
}

/** How large it can be drawn in the frame, at most as it is. */
const fit = ({ width, height }, frame) => Math.min(1, frame[0] / width, frame[1] / height);
