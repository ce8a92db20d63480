// The znodes behind a plan or a task: where it lies in ZooKeeper, and how large it is there.

import { html } from "../ui.js";
import { count, dateTime } from "../format.js";
import { Empty, Loading, Panel, Problem, Table } from "../parts.js";
import { useRead } from "../live.js";

export function Znodes({ plan, task, wake }) {
  const read = useRead(`plans/${plan}/znodes`, { query: { task }, wake, pause: 3000 });
  const items = read.data?.items ?? [];
  return html`<${Panel} title="Znodes" flush>
    ${read.error && html`<${Problem} error=${read.error} />`}
    ${!read.data && !read.error && html`<${Loading} />`}
    ${read.data && items.length === 0 && html`<${Empty} title="Nothing is left of it in ZooKeeper." />`}
    ${items.length > 0 && html`<${Table} label="Znodes" columns=${COLUMNS} rows=${items} keyOf=${(node) => node.path} />`}
    ${read.data?.more > 0 && html`<div class="more">${count(read.data.more)} more are not shown.</div>`}
  <//>`;
}

const COLUMNS = [
  { name: "path", title: "Path", kind: "name mono", cell: (node) => node.path },
  { name: "bytes", title: "Bytes", number: true, cell: (node) => count(node.bytes) },
  { name: "children", title: "Children", number: true, cell: (node) => count(node.children) },
  { name: "version", title: "Version", number: true, wide: true, cell: (node) => count(node.version) },
  { name: "created", title: "Created", kind: "short dim", wide: true, cell: (node) => dateTime(node.created) },
  { name: "modified", title: "Changed", kind: "short dim", wide: true, cell: (node) => dateTime(node.modified) },
];
