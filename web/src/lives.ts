// Lifetimes of processes, built from events and from the processes that are alive.

import type { Selection } from "./address";
import { type Ending, endingOf, isEnd, type Lifecycle, reasonOf } from "./events";
import type { Now } from "./model";

export interface Life {
  key: string;
  host: string;
  pid: number;
  group: string;
  start: number;
  /** Null while the process is alive. */
  end: number | null;
  ending: Ending | null;
  why: string;
}

/** Lifetimes: events give starts and ends, the recorder the processes that are alive. */
export function livesOf(
  events: readonly Lifecycle[],
  now: Now | null,
  selection: Selection,
): Life[] {
  const lives = new Map<string, Life>();
  const key = (host: string, pid: number, started: number) =>
    `${host} ${pid} ${started.toFixed(2)}`;
  const picked = (chosen: string[], value: string) => !chosen.length || chosen.includes(value);
  for (const process of selection.recording ? [] : (now?.processes ?? [])) {
    const { host, pid, started, group, alive, last_seen } = process;
    const wanted =
      picked(selection.hosts, host) &&
      picked(selection.groups, group) &&
      picked(selection.pids, String(pid));
    if (!wanted) continue;
    const end = alive ? null : last_seen;
    lives.set(key(host, pid, started), {
      key: key(host, pid, started),
      host,
      pid,
      group,
      start: started,
      end,
      ending: null,
      why: "",
    });
  }
  for (const event of [...events].sort((a, b) => a.time - b.time)) {
    const { host, pid, started, group } = event;
    const id = key(host, pid, started);
    const life = lives.get(id) ?? {
      key: id,
      host,
      pid,
      group,
      start: started || event.time,
      end: null,
      ending: null,
      why: "",
    };
    lives.set(id, life);
    if (!isEnd(event)) continue;
    life.end = event.time;
    // The supervisor, whose event is last, knows the cause if the process could not report it.
    life.ending = life.ending === "unplanned" ? "unplanned" : endingOf(event);
    life.why = reasonOf(event) || life.why;
  }
  return [...lives.values()].sort(
    (a, b) => a.host.localeCompare(b.host) || a.group.localeCompare(b.group) || a.start - b.start,
  );
}
