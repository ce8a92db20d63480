// Asks the layout worker, and keeps the last layout while the shape of the graph stays the same.

import { useEffect, useMemo, useRef, useState } from "../ui.js";

export const WIDTH = 196;
export const HEIGHT = 62;

/** So many pixels high is a graph at most, in a window of this height; a small one is less. */
export const heightMax = () => Math.min(760, Math.max(320, 0.58 * innerHeight));

let worker = null;
let last = 0;
const waiting = new Map();

/** Start the worker, so that it is ready when the graph has been read. */
export function warm() {
  if (worker) return;
  worker = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => {
    waiting.get(data.ask)?.(data);
    waiting.delete(data.ask);
  };
}

/** The layout of nodes and edges for the element `of`; null until the first is there. It changes only with the shape of
 * the graph, not with the states of its tasks: so nothing jumps while a plan runs. */
export function useLayout(nodes, edges, of) {
  const asked = useRef(0);
  const [made, setMade] = useState(null);
  const shape = useMemo(() => JSON.stringify([nodes.map((node) => node.id), edges.map((edge) => [edge.from, edge.to])]), [nodes, edges]);
  useEffect(() => {
    warm();
    const ask = (last += 1);
    asked.current = ask;
    waiting.set(ask, (data) => {
      if (asked.current === ask) setMade({ ...data, shape });
    });
    const frame = [of.current.clientWidth, heightMax()];
    const ways = edges.map((edge) => [edge.from, edge.to, edge.count]);
    const bands = nodes.map((node) => node.band ?? 0);
    worker.postMessage({ ask, nodes: nodes.map((node) => node.id), bands, edges: ways, frame, box: [WIDTH, HEIGHT] });
    return () => waiting.delete(ask);
  }, [shape]);
  return made?.shape === shape ? made : made && { ...made, isOld: true };
}
