// Keys that work on every page, where nothing is being typed.

import { useEffect, useRef } from "preact/hooks";
import { keep, kept } from "./setting";

const KEY = "headway-shortcuts";
let enabled = kept(KEY) !== "off";

/** Whether single keys act as shortcuts. Users with speech input turn them off (WCAG 2.1.4). */
export function areShortcutsOn(): boolean {
  return enabled;
}

export function turnShortcuts(on: boolean): void {
  enabled = on;
  keep(KEY, on ? "on" : "off");
}

/** Whether a key is a shortcut: no modifier, nothing is being typed, and shortcuts are on. */
export function isShortcut(event: KeyboardEvent): boolean {
  if (!enabled || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) {
    return false;
  }
  const place = event.target;
  const isTyping =
    place instanceof HTMLElement && place.closest("input, select, textarea, dialog") !== null;
  return !isTyping;
}

export const KEYS: readonly (readonly [string, string])[] = [
  ["1 … 9", "go to a page, in the order of the tabs"],
  ["p", "pause the live view, or continue it"],
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
      const action = latest.current[event.key];
      if (!action || !isShortcut(event)) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}
