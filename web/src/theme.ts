// Light or dark: the system's choice unless the switch overrides it. Charts are drawn on canvases,
// which CSS does not reach, so they read the colours of style.css here.

import { useEffect, useState } from "preact/hooks";
import { keep, kept } from "./setting";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "headway-theme";
const changed = new EventTarget();

export function chosen(): Theme {
  const name = kept(KEY);
  return THEMES.find((theme) => theme === name) ?? "auto";
}

export function choose(theme: Theme): void {
  keep(KEY, theme);
  apply(theme);
}

export function apply(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  changed.dispatchEvent(new Event("change"));
}

/** Counts changes of the colours, so that charts are redrawn. */
export function useTheme(): number {
  const [version, set] = useState(0);
  useEffect(() => {
    const next = () => set((before) => before + 1);
    const sources = [
      matchMedia("(prefers-color-scheme: dark)"),
      matchMedia("(forced-colors: active)"),
      changed,
    ];
    for (const source of sources) source.addEventListener("change", next);
    return () => {
      for (const source of sources) source.removeEventListener("change", next);
    };
  }, []);
  return version;
}

export type Colour =
  | "ink"
  | "muted"
  | "line"
  | "surface"
  | "sunken"
  | "accent"
  | "teal"
  | "blue"
  | "amber"
  | "red"
  | "violet"
  | "grey";

/** A colour of style.css in the form that a canvas takes. A palette of forced colours has names of
 * system colours; an element's computed colour gives their values. */
export function colour(name: Colour, opacity = 1): string {
  const probe = probeOf();
  probe.style.color = `var(--${name})`;
  const value = getComputedStyle(probe).color;
  return opacity === 1 ? value : value.replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);
}

let made: HTMLElement | undefined;

function probeOf(): HTMLElement {
  if (!made) {
    made = document.createElement("span");
    made.hidden = true;
    made.style.forcedColorAdjust = "none";
    document.body.append(made);
  }
  return made;
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
