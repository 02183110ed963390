// The properties that all charts over time of a page have in common.

import type { Series } from "../model";
import { showRange } from "../navigation";
import { settingChanges } from "../settings";

/** `times` are the points that the chart draws; `stale` while newer ones are on their way. */
export function overTime(series: Series, times: number[], stale: boolean) {
  const { from, to, markers, points } = series;
  const settings = settingChanges(points);
  return { times, from, to, markers, settings, stale, onRange: showRange };
}
