// Parts that every view uses: heads, figures, bars, tables, dialogs, empty states.

import { html, useEffect, useRef, useState } from "./ui.js";
import { count, percent } from "./format.js";
import { ORDER, State, classOf, wordOf } from "./states.js";

/** The head of a view: where it is, what it shows, what can be done. Sets the window's title. */
export function Head({ crumbs = [], title, beside, below, children }) {
  useEffect(() => {
    document.title = `${title} · zkplan`;
  }, [title]);
  return html`<div class="head">
    <div class="what">
      ${crumbs.length > 0 &&
      html`<nav class="crumbs" aria-label="Breadcrumb">${crumbs.map(([text, to], at) => html`${at > 0 && " / "}<a href=${to}>${text}</a>`)}</nav>`}
      <div class="title"><h1 tabindex="-1">${title}</h1>${beside}</div>
      ${below && html`<div class="dim">${below}</div>`}
    </div>
    ${children && html`<div class="actions">${children}</div>`}
  </div>`;
}

export function Panel({ title, tools, kind = "", flush, children }) {
  return html`<section class="panel ${kind}" aria-label=${title}>
    <header><h2>${title}</h2>${tools}</header>
    ${flush ? children : html`<div class="body">${children}</div>`}
  </section>`;
}

/** Text whose lines break between its words: dates, options and the like stay whole where there is room. */
export const Words = ({ of }) => of.split(/(\s+)/).map((part, at) => (at % 2 ? part : html`<span class="word">${part}</span>`));

/** Figures in a row: [label, value, note, class]. */
export function Figures({ of }) {
  return html`<dl class="figures">
    ${of.map(([label, value, note, kind]) => html`<div class="figure ${kind ?? ""}" key=${label}><dt>${label}</dt><dd>${value}${note && html` <small>${note}</small>`}</dd></div>`)}
  </dl>`;
}

/** A bar of the counts of states; what they do not fill is left empty. */
export function Bar({ counts, all, tall, label }) {
  const shown = ORDER.filter((state) => counts[state] > 0);
  const said = label ?? shown.map((state) => `${count(counts[state])} ${wordOf(state)}`).join(", ");
  return html`<div class="bar ${tall ? "tall" : ""}" role="img" aria-label=${said || "nothing yet"} title=${said}>
    ${shown.map((state) => html`<span key=${state} class=${classOf(state)} style=${{ width: `${(100 * counts[state]) / (all || 1)}%` }} />`)}
  </div>`;
}

export function Progress({ counts, done, all }) {
  return html`<div class="progress"><${Bar} counts=${counts} all=${all} /><b>${percent(done, all)}</b></div>`;
}

export function Key({ counts }) {
  return html`<ul class="key">
    ${ORDER.filter((state) => counts[state] > 0).map((state) => html`<li key=${state}><${State} state=${state} word=${`${wordOf(state)} ${count(counts[state])}`} /></li>`)}
  </ul>`;
}

/**
 * A table. A column: {name, title, cell(row), number, kind, wide, sort(row)}; `by` and `onSort` make
 * columns with `sort` clickable. Rows keep their place in the document by `keyOf`, so that a live
 * table neither flickers nor loses the focus.
 */
export function Table({ label, columns, rows, keyOf, by, onSort }) {
  const kind = (column) => `${column.kind ?? ""} ${column.number ? "number" : ""} ${column.wide ? "wide" : ""}`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <caption class="said">${label}</caption>
      <thead><tr>${columns.map((column) => html`<${Title} key=${column.name} column=${column} kind=${kind(column)} by=${by} onSort=${onSort} />`)}</tr></thead>
      <tbody>
        ${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map((column) => html`<td key=${column.name} class=${kind(column)}>${column.cell(row)}</td>`)}</tr>`)}
      </tbody>
    </table>
  </div>`;
}

function Title({ column, kind, by, onSort }) {
  if (!column.sort || !onSort) {
    return html`<th scope="col" class=${kind}>${column.title || html`<span class="said">actions</span>`}</th>`;
  }
  const is = by?.name === column.name;
  const next = { name: column.name, down: is ? !by.down : Boolean(column.number) };
  return html`<th scope="col" class=${kind} aria-sort=${is ? (by.down ? "descending" : "ascending") : undefined}>
    <button type="button" onClick=${() => onSort(next)}>${column.title}<span class="arrow" aria-hidden="true">${is && !by.down ? "↑" : "↓"}</span></button>
  </th>`;
}

/** Rows in the order of `by`; equal ones keep the order in which they came. */
export function sorted(rows, columns, by) {
  const column = columns.find((each) => each.name === by?.name && each.sort);
  if (!column) return rows;
  const sign = by.down ? -1 : 1;
  const before = (a, b) => {
    if (a === b) return 0;
    if (a === null || a === undefined) return sign;
    if (b === null || b === undefined) return -sign;
    return a < b ? -1 : 1;
  };
  return [...rows].sort((a, b) => sign * before(column.sort(a), column.sort(b)));
}

export function Empty({ title, command, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<span>${children}</span>`}${command && html`<code>${command}</code>`}</div>`;
}

export function Loading() {
  return html`<div class="loading" role="status"><span><span class="spin" aria-hidden="true" /> Reading …</span></div>`;
}

export function Problem({ error }) {
  return html`<div class="error" role="alert"><b>${error.title || String(error)}</b> ${error.detail}</div>`;
}

/** The pager of a list that the service gives in pages. */
export function Pager({ said, hasBefore, hasNext, onBefore, onNext }) {
  return html`<div class="more"><span>${said}</span>
    <span class="actions">
      <button class="button small" type="button" disabled=${!hasBefore} onClick=${onBefore}>Previous</button>
      <button class="button small" type="button" disabled=${!hasNext} onClick=${onNext}>Next</button>
    </span></div>`;
}

/** A button that asks before it acts, and says how it went. */
export function Ask({ label, title, text, act, danger, first, small, describedBy, onOpen }) {
  const dialog = useRef(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const open = () => {
    setError(null);
    onOpen?.();
    dialog.current.showModal();
  };
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const said = await act();
      dialog.current?.close();
      if (said) toast(said);
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class="button ${danger ? "danger" : ""} ${first ? "first" : ""} ${small ? "small" : ""}" aria-label=${describedBy ? `${label} ${describedBy}` : undefined} onClick=${open}>${label}</button>
    <dialog ref=${dialog} aria-label=${title}>
      <form method="dialog" onSubmit=${go}>
        <h2>${title}</h2>
        <p>${text}</p>
        ${error && html`<${Problem} error=${error} />`}
        <div class="actions">
          <button class="button" type="button" onClick=${() => dialog.current.close()}>Leave it</button>
          <button class="button first ${danger ? "danger" : ""}" disabled=${isBusy}>${label}</button>
        </div>
      </form>
    </dialog>`;
}

let speak = () => {};
export const toast = (text) => speak(text);

/** Says for some seconds how an action went. */
export function Toast() {
  const [text, setText] = useState("");
  speak = setText;
  useEffect(() => {
    if (!text) return undefined;
    const timer = setTimeout(() => setText(""), 5000);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div role="status">${text && html`<div class="toast">${text}</div>`}</div>`;
}
