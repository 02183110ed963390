// The lines that make threads wait, beside those of an earlier range.

import type { Holders, LineRow } from "./model";

export interface ComparedLine extends LineRow {
  key: string;
  /** The seconds that others waited, in each second of the range. */
  rate: number;
  /** The same in the earlier range; null without one. */
  before: number | null;
}

type Range = Pick<Holders, "lines" | "seconds">;

/** All lines of both ranges. Lines of the present range keep their order and come first. */
export function beside(now: Range, before: Range | null): ComparedLine[] {
  const earlier = new Map(before?.lines.map((line) => [keyOf(line), line]));
  const rate = (waited: number, range: Range) => (range.seconds > 0 ? waited / range.seconds : 0);
  const found = now.lines.map((line): ComparedLine => {
    const key = keyOf(line);
    const then = before && rate(earlier.get(key)?.waited ?? 0, before);
    earlier.delete(key);
    return { ...line, key, rate: rate(line.waited, now), before: then };
  });
  for (const [key, line] of earlier) {
    const then = before && rate(line.waited, before);
    found.push({ ...line, key, waited: 0, rate: 0, before: then });
  }
  return found;
}

function keyOf({ function: name, file, line, endpoint }: LineRow): string {
  return JSON.stringify([name, file, line, endpoint]);
}
