// Light, dark, or as the system says. The choice is kept in this browser.

import { html, useState } from "./ui.js";

const KEPT = "zkplan-scheme";
const NEXT = { "": "light", light: "dark", dark: "" };
const NAMES = { "": "as the system", light: "light", dark: "dark" };
const SIGNS = { "": "◐", light: "○", dark: "●" };

function apply(scheme) {
  if (scheme) document.documentElement.dataset.scheme = scheme;
  else delete document.documentElement.dataset.scheme;
}

const kept = localStorage.getItem(KEPT);
const first = kept in NEXT ? kept : "";
apply(first);

export function Scheme() {
  const [scheme, setScheme] = useState(first);
  const turn = () => {
    const next = NEXT[scheme];
    localStorage.setItem(KEPT, next);
    apply(next);
    setScheme(next);
  };
  return html`<button class="button plain small" type="button" onClick=${turn} title=${`Colours: ${NAMES[scheme]}`} aria-label=${`Colours: ${NAMES[scheme]}`}><span aria-hidden="true">${SIGNS[scheme]} Colours</span></button>`;
}
