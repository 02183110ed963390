// Keys that work on every page, where nothing is being typed.

import { useEffect, useRef } from "preact/hooks";

export const KEYS: readonly (readonly [string, string])[] = [
  ["1 … 8", "go to a page, in the order of the tabs"],
  ["p", "pause at what is shown, or go on live"],
  ["[ and ]", "half a range earlier, later"],
  ["+ and -", "half as long, twice as long"],
  ["c", "add this range and selection to the comparison"],
  ["t", "colours: auto, light, dark"],
  ["/", "filter (slow requests, endpoints)"],
  ["?", "this list"],
  ["← → ↑ ↓, Home, End", "move the cursor of the chart or map that has the focus"],
  ["Esc", "close"],
];

export function useShortcuts(actions: Record<string, () => void>): void {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const place = event.target;
      if (place instanceof HTMLElement && place.closest("input, select, textarea, dialog")) return;
      const action = latest.current[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}
