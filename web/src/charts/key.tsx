// The key of a line in a legend. Lines of one chart differ by their dashes, not by hue alone.

import type { Colour } from "../theme";

const DASHES: readonly (readonly number[])[] = [[], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [1, 3]];

/** The dashes of the line at a place in its chart, in CSS pixels; none for a solid line. */
export function dashesOf(index: number): number[] {
  return [...(DASHES[index % DASHES.length] ?? [])];
}

export function LineKey({ hue, index, opacity }: { hue: Colour; index: number; opacity?: number }) {
  return (
    <svg class={`key ${hue}`} viewBox="0 0 24 10" aria-hidden="true" opacity={opacity ?? 1}>
      <line x1="0" y1="5" x2="24" y2="5" stroke-dasharray={dashesOf(index).join(" ")} />
    </svg>
  );
}
