// Light or dark: the system's choice unless the switch says otherwise. Charts are drawn on canvases,
// which CSS does not reach, so they ask here for the colours that style.css names.

import { useEffect, useState } from "preact/hooks";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "headway-theme";
const changed = new EventTarget();

export function chosen(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto";
  }
}

export function choose(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A browser may keep nothing; the choice then lasts as long as the page.
  }
  apply(theme);
}

export function apply(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  changed.dispatchEvent(new Event("change"));
}

/** Counts changes of the colours, so that what is drawn is drawn anew. */
export function useTheme(): number {
  const [version, set] = useState(0);
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const next = () => set((before) => before + 1);
    system.addEventListener("change", next);
    changed.addEventListener("change", next);
    return () => {
      system.removeEventListener("change", next);
      changed.removeEventListener("change", next);
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

/** A colour of style.css, as a canvas takes it. */
export function colour(name: Colour, opacity = 1): string {
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  if (opacity === 1 || !/^#[0-9a-f]{6}$/i.test(value)) return value;
  return `${value}${Math.round(opacity * 255)
    .toString(16)
    .padStart(2, "0")}`;
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
