// Steps from the range that is shown to another, each one that Back undoes.

import { go, parse } from "./address";
import { isLive, moved, zoomed } from "./range";

const seconds = () => Date.now() / 1000;

const shown = () => parse(location.hash).range;

/** Stops at what is shown, or goes on from there with as long a range that ends now. */
export function pauseOrResume(): void {
  const range = shown();
  if (isLive(range)) go({ range: { from: seconds() - range.last, to: seconds() } });
  else go({ range: { last: Math.round(range.to - range.from) } });
}

export function moveRange(times: number): void {
  go({ range: moved(shown(), times, seconds()) });
}

export function zoomRange(factor: number): void {
  go({ range: zoomed(shown(), factor, seconds()) });
}

export function showRange(from: number, to: number): void {
  go({ range: { from, to } });
}
