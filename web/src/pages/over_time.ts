// The properties that all charts over time of a page have in common.

import type { Series } from "../model";
import { showRange } from "../navigation";

/** `times` are the points that the chart draws; `stale` while newer ones are on their way. */
export function overTime(series: Series, times: number[], stale: boolean) {
  const { from, to, markers } = series;
  return { times, from, to, markers, stale, onRange: showRange };
}
