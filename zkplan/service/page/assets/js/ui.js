// What views are written with: preact's components, and templates that need no build step.
//
// A template makes elements and text nodes, never markup out of a string: what a task is called
// cannot become an element, whatever it contains.

import { h, render } from "../vendor/preact/preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact/hooks.js";
import htm from "../vendor/htm/htm.js";

export const html = htm.bind(h);
export { render, useEffect, useMemo, useRef, useState };
