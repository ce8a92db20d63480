// The part of the picture that is seen: it is moved by dragging, zoomed by the wheel and by keys.

import { useEffect, useRef, useState } from "../ui.js";

const NEAREST = 2.2;
const FARTHEST = 0.04;

/** `box` is {x, y, scale} of the picture in the element `of`; with the handlers for it. A picture of another `depth` is
 * shown whole. */
export function useView(of, made, depth) {
  const [box, setBox] = useState(null);
  const fitted = useRef(null);
  const drag = useRef(null);
  const shown = useRef(""); // for which size it was shown whole
  const isMoved = useRef(false); // by hand: then another size of the page does not show it whole again
  const size = () => [of.current?.clientWidth || 800, of.current?.clientHeight || 500];

  const fit = () => {
    const [width, height] = size();
    shown.current = String([width, height]);
    const scale = Math.min(1, (width - 20) / made.width, (height - 20) / made.height);
    setBox({ x: (width - made.width * scale) / 2, y: (height - made.height * scale) / 2, scale });
  };
  const zoom = (by, at) => {
    const [width, height] = size();
    const [x, y] = at ?? [width / 2, height / 2];
    isMoved.current = true;
    setBox((old) => {
      const scale = Math.min(NEAREST, Math.max(FARTHEST, old.scale * by));
      const grown = scale / old.scale;
      return { x: x - (x - old.x) * grown, y: y - (y - old.y) * grown, scale };
    });
  };
  /** Move so that this point of the picture is well inside. */
  const show = ([x, y]) => {
    const [width, height] = size();
    setBox((old) => {
      const at = [old.x + x * old.scale, old.y + y * old.scale];
      const isSeen = at[0] > 110 && at[0] < width - 110 && at[1] > 45 && at[1] < height - 45;
      isMoved.current ||= !isSeen;
      return isSeen ? old : { ...old, x: width / 2 - x * old.scale, y: height / 2 - y * old.scale };
    });
  };

  // A picture that has grown a little keeps its place; a first one is shown whole.
  useEffect(() => {
    if (!made || made.isOld || fitted.current === depth) return;
    fitted.current = depth;
    isMoved.current = false;
    fit();
  }, [made, depth]);
  useEffect(() => {
    if (!made) return undefined;
    const resized = new ResizeObserver(() => {
      if (fitted.current === depth && !isMoved.current && shown.current !== String(size())) fit();
    });
    resized.observe(of.current);
    return () => resized.disconnect();
  }, [made, depth]);
  useEffect(() => {
    const element = of.current;
    const wheel = (event) => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), [event.clientX - left, event.clientY - top]);
    };
    // Not by an attribute: only a listener that is not passive may keep the page from scrolling.
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const handlers = {
    onPointerDown: (event) => {
      if (event.button === 0) drag.current = { x: event.clientX, y: event.clientY, moved: false };
    },
    onPointerMove: (event) => {
      const from = drag.current;
      if (!from) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(dx, dy) < 4) return;
      if (!from.moved) of.current.setPointerCapture(event.pointerId);
      drag.current = { x: event.clientX, y: event.clientY, moved: true };
      isMoved.current = true;
      setBox((old) => ({ ...old, x: old.x + dx, y: old.y + dy }));
    },
    onPointerUp: () => {
      drag.current = null;
    },
    onPointerCancel: () => {
      drag.current = null;
    },
  };
  const whole = () => {
    isMoved.current = false;
    fit();
  };
  return { box, whole, zoom, show, handlers };
}
