// The span of time that a page shows: the last N seconds, which move on, or two fixed moments. How
// a range is typed, written and moved is here; pages are not known here.

import { interval, span } from "./format";

export type Range = { last: number } | { from: number; to: number };

export const PRESETS: readonly (readonly [number, string])[] = [
  [60, "1 min"],
  [300, "5 min"],
  [900, "15 min"],
  [3_600, "1 h"],
  [21_600, "6 h"],
  [86_400, "24 h"],
  [604_800, "7 d"],
  [2_592_000, "30 d"],
];

export const DEFAULT: Range = { last: 300 };

export function isLive(range: Range): range is { last: number } {
  return "last" in range;
}

/** The moments that a range stands for at `now`. */
export function moments(range: Range, now: number): { from: number; to: number } {
  return isLive(range) ? { from: now - range.last, to: now } : range;
}

export function describe(range: Range): string {
  return isLive(range) ? `last ${span(range.last)}` : interval(range.from, range.to);
}

/** The parameters of a request to the API. */
export function parameters(range: Range): [string, string][] {
  if (isLive(range)) return [["from", String(-range.last)]];
  return [
    ["from", range.from.toFixed(3)],
    ["to", range.to.toFixed(3)],
  ];
}

/** The period of a live range's requests: a second's change is not visible in a week. */
export function refreshSeconds(range: Range): number | null {
  if (!isLive(range)) return null;
  return Math.min(60, Math.max(1, Math.round(range.last / 300)));
}

const MOST_STEPS = 300;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[60, 120, 300, 600, 900, 1_800],
  ...[3_600, 10_800, 21_600, 43_200, 86_400],
];

/** The step of a chart of `length` seconds: round, and no shorter than a tick. */
export function stepOf(length: number): number {
  const shortest = length / MOST_STEPS;
  return STEPS.find((step) => step >= shortest * 0.999) ?? 86_400 * Math.ceil(shortest / 86_400);
}

export const SHORTEST = 1;

/** The same range `times` its length later (negative: earlier), never beyond now. */
export function moved(range: Range, times: number, now: number): Range {
  const { from, to } = moments(range, now);
  const by = Math.min((to - from) * times, now - to);
  if (isLive(range) && by >= 0) return range;
  return { from: from + by, to: to + by };
}

/** A range `factor` as long around `about`, or its middle; a live range still ends now. */
export function zoomed(range: Range, factor: number, now: number, about?: number): Range {
  if (isLive(range) && about === undefined) return { last: Math.max(10, range.last * factor) };
  const { from, to } = moments(range, now);
  const middle = about ?? (from + to) / 2;
  const length = Math.max(SHORTEST, (to - from) * factor);
  const end = Math.min(now, middle + length / 2);
  return { from: end - length, to: end };
}

const UNITS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3_600, d: 86_400, w: 604_800 };

/**
 * A moment as people type it: "now", "-2h", "14:30", "14:30:05", "2026-11-22", "2026-11-22 14:30",
 * or seconds since 1970. Null if the text has none of these forms.
 */
export function parseMoment(text: string, now: number): number | null {
  const typed = text.trim().toLowerCase();
  if (typed === "now" || typed === "") return now;
  const ago = /^-\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)?$/.exec(typed);
  if (ago) return now - Number(ago[1]) * (UNITS[ago[2] ?? "s"] ?? 1);
  if (/^\d{9,11}(\.\d+)?$/.test(typed)) return Number(typed);
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(typed);
  const date = /^(\d{4})-(\d{2})-(\d{2})(?:[t ]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?$/.exec(typed);
  if (clock) {
    const day = new Date(now * 1000);
    const at = localTime(day.getFullYear(), day.getMonth() + 1, day.getDate(), clock.slice(1));
    // 23:50 typed at 00:10 is last night's.
    return at === null ? null : at > now ? at - 86_400 : at;
  }
  if (date) return localTime(Number(date[1]), Number(date[2]), Number(date[3]), date.slice(4));
  return null;
}

function localTime(
  year: number,
  month: number,
  day: number,
  clock: (string | undefined)[],
): number | null {
  const [hours = 0, minutes = 0, seconds = 0] = clock.map((part) => Number(part ?? 0));
  if (hours > 23 || minutes > 59 || seconds > 59) return null;
  const date = new Date(year, month - 1, day, hours, minutes, seconds);
  return date.getMonth() === month - 1 && date.getDate() === day ? date.getTime() / 1000 : null;
}
