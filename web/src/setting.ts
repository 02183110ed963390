// Settings that the browser keeps. A browser may keep nothing; a setting then lasts as long as the
// page.

export function kept(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See above: the caller has applied the value already.
  }
}
