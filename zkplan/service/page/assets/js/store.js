// Values that several parts of the page watch: the login, the connection, the place.

import { useEffect, useState } from "./ui.js";

export class Watched {
  #watchers = new Set();

  constructor(value) {
    this.value = value;
  }

  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.#watchers]) watcher(value);
  }

  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

/** The value of a Watched; the component is drawn anew when it changes. */
export function useWatched(watched) {
  const [value, setValue] = useState(watched.value);
  useEffect(() => {
    setValue(() => watched.value);
    return watched.watch((next) => setValue(() => next));
  }, [watched]);
  return value;
}
