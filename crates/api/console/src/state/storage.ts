// Session storage as typed boxes. What is in it lives as long as the tab: the token, the draft, the sends that were
// not answered. A browser that forbids storage still gets a working page, which only forgets on reload.
export interface Box<T> {
  read(): T | null;
  write(value: T | null): void;
}

export function box<T>(name: string): Box<T> {
  const key = `aivideo.${name}`;
  return {
    read() {
      try {
        const text = sessionStorage.getItem(key);
        return text === null ? null : (JSON.parse(text) as T);
      } catch {
        return null;
      }
    },
    write(value) {
      try {
        if (value === null) sessionStorage.removeItem(key);
        else sessionStorage.setItem(key, JSON.stringify(value));
      } catch {
        // Full or forbidden: nothing that the user sees depends on it.
      }
    },
  };
}
