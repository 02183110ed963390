import { expect, test } from "vitest";
import { EVERYTHING } from "../src/address";
import type { Lifecycle } from "../src/events";
import { livesOf } from "../src/lives";
import type { Now, Process } from "../src/model";

const event = (
  pid: number,
  time: number,
  what: Lifecycle["event"],
  more: Partial<Lifecycle> = {},
) => ({
  ...{ host: "h", pid, started: 100, group: "g", time, event: what },
  ...more,
});

const now = (...pids: number[]) =>
  ({
    processes: pids.map(
      (pid) => ({ host: "h", pid, started: 100, group: "g", alive: true }) as Process,
    ),
  }) as Now;

test("who lives now lives, whether its start was seen or not", () => {
  const lives = livesOf([event(1, 100, "process_started")], now(1, 2), EVERYTHING);
  expect(lives.map(({ pid, start, end }) => [pid, start, end])).toEqual([
    [1, 100, null],
    [2, 100, null],
  ]);
});

test("the supervisor's word on a death outlasts what the process itself said before", () => {
  const events = [
    event(1, 205, "process_stopped", { death: "killed by SIGKILL", reported_by_supervisor: 1 }),
    event(1, 200, "process_stopping", { shutdown_reason: "maximum_requests" }),
  ];
  expect(livesOf(events, null, EVERYTHING)).toMatchObject([
    { pid: 1, end: 205, ending: "unplanned", why: "killed by SIGKILL" },
  ]);
});

test("a pid that was given away again is another life", () => {
  const events = [
    event(1, 150, "process_stopped", { shutdown_reason: "script_reload" }),
    event(1, 300, "process_started", { started: 300 }),
  ];
  expect(livesOf(events, null, EVERYTHING).map(({ start, end }) => [start, end])).toEqual([
    [100, 150],
    [300, null],
  ]);
});

test("who is not selected is not shown, and a recording knows nobody who lives now", () => {
  expect(livesOf([], now(1, 2), { ...EVERYTHING, pids: ["2"] }).map(({ pid }) => pid)).toEqual([2]);
  expect(livesOf([], now(1), { ...EVERYTHING, recording: "before" })).toEqual([]);
});
