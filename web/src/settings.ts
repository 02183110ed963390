// The settings of the GIL over time: a server that is tuned changes its policy and its switch
// interval every few seconds.

import type { Series } from "./model";

export interface SettingChange {
  /** The begin of the first step with this setting. */
  time: number;
  setting: string;
}

/** The changes, the first setting included; undefined if there was one setting all the time. */
export function settingChanges(points: Series["points"]): SettingChange[] | undefined {
  const changes: SettingChange[] = [];
  for (const { time, setting } of points) {
    if (setting && setting !== changes.at(-1)?.setting) changes.push({ time, setting });
  }
  return changes.length > 1 ? changes : undefined;
}

/** The setting at a time; "unknown" before the first one. */
export function settingAt(changes: SettingChange[], time: number): string {
  return changes.findLast((change) => change.time <= time)?.setting ?? "unknown";
}
