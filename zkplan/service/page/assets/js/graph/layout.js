// Asks the layout worker, and keeps the last layout while the shape of the graph stays the same.

import { useEffect, useRef, useState } from "../ui.js";

export const WIDTH = 196;
export const HEIGHT = 62;

/** The layout of nodes and edges for the element `of`; null until the first is there. It changes only with the shape of
 * the graph, not with the states of its tasks: so nothing jumps while a plan runs. */
export function useLayout(nodes, edges, of) {
  const worker = useRef(null);
  const asked = useRef(0);
  const [made, setMade] = useState(null);
  const ids = nodes.map((node) => node.id);
  const pairs = edges.map((edge) => [edge.from, edge.to]);
  const shape = JSON.stringify([ids, pairs]);
  useEffect(() => {
    worker.current = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });
    return () => worker.current.terminate();
  }, []);
  useEffect(() => {
    const ask = (asked.current += 1);
    worker.current.onmessage = ({ data }) => {
      if (data.ask === asked.current) setMade({ ...data, shape });
    };
    const frame = [of.current.clientWidth, of.current.clientHeight];
    worker.current.postMessage({ ask, nodes: ids, edges: pairs, frame, box: [WIDTH, HEIGHT] });
  }, [shape]);
  return made;
}
