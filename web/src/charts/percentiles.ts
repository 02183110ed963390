// The lines of a duration over time: p50, p95 and p99 in one hue, with the areas between filled.

import type { Metric, Series, Summary } from "../model";
import type { Colour } from "../theme";
import type { Line } from "./lines";

export function percentileLines(points: Series["points"], metric: Metric, hue: Colour): Line[] {
  const of = (name: "p50" | "p95" | "p99") =>
    points.map(({ summary }) => summary?.[metric]?.[name] ?? null);
  return [
    { label: "p50", values: of("p50"), colour: hue, width: 2 },
    { label: "p95", values: of("p95"), colour: hue, opacity: 0.7, width: 1.5, fill: "before" },
    { label: "p99", values: of("p99"), colour: hue, opacity: 0.45, width: 1.25, fill: "before" },
  ];
}

export function line(
  points: Series["points"],
  label: string,
  hue: Colour,
  value: (summary: Summary) => number | null | undefined,
  more: Partial<Line> = {},
): Line {
  return {
    label,
    colour: hue,
    values: points.map(({ summary }) => (summary ? (value(summary) ?? null) : null)),
    ...more,
  };
}

/** Whether a line has a value above zero: a chart does not name what never occurs. */
export function happens(line: Line): boolean {
  return line.values.some((value) => value !== null && value > 0);
}
