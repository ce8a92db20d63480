// What keeps a view live: events that the service sends, and reads that follow them.

import { Refused, address, away, awayBecause, send } from "./api.js";
import { useEffect, useRef, useState } from "./ui.js";

/** The service sends a sign of life every ten seconds. */
const SILENT_MS = 25_000;
const AGAIN_MIN_MS = 400;
const AGAIN_MAX_MS = 4_000;
/** A read follows another after this long at the earliest. */
const PAUSE_MS = 700;

/**
 * Listen to a stream of events until the returned function is called: `onEvent(name, facts)`. It
 * comes back by itself after each loss. Not an EventSource, which cannot send the token.
 */
export function listen(path, onEvent) {
  const stop = new AbortController();
  let again = AGAIN_MIN_MS;
  const loop = async () => {
    while (!stop.signal.aborted) {
      try {
        await follow(path, stop.signal, (name, facts) => {
          again = AGAIN_MIN_MS;
          away.set(name === "problem" ? awayBecause(facts) : "");
          onEvent(name, facts);
        });
        if (!stop.signal.aborted) away.set("The connection to the service was lost. Trying again …");
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Refused && error.status === 404) return void onEvent("gone", {});
        if (error instanceof Refused && [401, 403].includes(error.status)) return;
        if (!(error instanceof Refused)) away.set("The connection to the service was lost. Trying again …");
      }
      await new Promise((resolve) => setTimeout(resolve, again));
      again = Math.min(AGAIN_MAX_MS, again * 2);
    }
  };
  loop();
  return () => stop.abort();
}

async function follow(path, stopped, onEvent) {
  const silent = new AbortController();
  const stop = () => silent.abort();
  stopped.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENT_MS);
  try {
    const answer = await send("GET", path, { signal: silent.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENT_MS);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) tell(block, onEvent);
    }
  } finally {
    clearTimeout(timer);
    stopped.removeEventListener("abort", stop);
    silent.abort();
  }
}

function tell(block, onEvent) {
  const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  if (fields.data) onEvent(fields.event, JSON.parse(fields.data));
}

/** Listen while the component is shown. */
export function useEvents(path, onEvent) {
  const handler = useRef(onEvent);
  handler.current = onEvent;
  useEffect(() => (path === null ? undefined : listen(path, (name, facts) => handler.current(name, facts))), [path]);
}

/**
 * Read a path, and again whenever `wake` changes, but not more often than the pause, nor than
 * `rest` times as long as a read takes; also every
 * `every` ms where that is given. The last answer stays while another is on its way or fails: nothing
 * jumps. Returns {data, error, again}, and
 * `begun`, when the read of the data began. A `path` of null reads nothing.
 */
export function useRead(path, { query = {}, wake = 0, every = 0, pause = PAUSE_MS, rest = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, of: "" });
  const job = useRef(null);
  const wanted = path === null ? "" : address(path, query).href;
  useEffect(() => {
    if (!wanted) return undefined;
    job.current = reading(wanted, { pause, every, rest }, (read) => setState((old) => ({ ...(old.of === wanted ? old : { data: old.data, error: null }), ...read, of: wanted })));
    return job.current.stop;
  }, [wanted, every]);
  useEffect(() => job.current?.soon(), [wake]);
  return { ...state, isOld: state.of !== wanted, again: () => job.current?.now() };
}

/** Reads an address one request at a time; a hidden page reads nothing until it is seen. */
function reading(wanted, { pause: least, every, rest }, onRead) {
  const stopped = new AbortController();
  let timer = null;
  let begun = 0;
  let isBusy = false;
  let isWanted = false;
  let tag = "";
  let pause = least;

  const read = async () => {
    clearTimeout(timer);
    timer = null;
    if (isBusy || document.hidden) {
      isWanted = true;
      return;
    }
    [isBusy, isWanted, begun] = [true, false, performance.now()];
    let next = every;
    try {
      const answer = await send("GET", wanted, { signal: stopped.signal, more: tag ? { "if-none-match": tag } : {} });
      if (answer.status !== 304) {
        tag = answer.headers.get("etag") ?? "";
        const from = begun;
        const data = await answer.json();
        pause = Math.max(least, rest * (performance.now() - from));
        onRead({ data, error: null, begun: from });
      }
    } catch (error) {
      if (stopped.signal.aborted) return;
      const passes = error.status === 0 || [429, 502, 503, 504].includes(error.status);
      if (passes) next = 2000;
      else onRead({ error });
    }
    isBusy = false;
    if (isWanted) later(pause);
    else if (next) later(next);
  };
  const later = (wait) => {
    clearTimeout(timer);
    timer = setTimeout(read, wait);
  };
  const soon = () => {
    if (isBusy) isWanted = true;
    else if (timer === null || every) later(Math.max(0, pause - (performance.now() - begun)));
  };
  const seen = () => !document.hidden && isWanted && soon();
  document.addEventListener("visibilitychange", seen);
  read();
  return {
    soon,
    now: () => (isBusy ? soon() : read()),
    stop: () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      stopped.abort();
    },
  };
}

/** The time now in ms, anew each second, for what is told as "since". */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
