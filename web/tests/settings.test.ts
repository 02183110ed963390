import { expect, test } from "vitest";
import { settingAt, settingChanges } from "../src/settings";

const point = (time: number, setting: string | null) => ({ time, setting, summary: null });

test("changes of the setting are found across steps without data", () => {
  const points = [
    point(0, null),
    point(1, "5 ms, interval"),
    point(2, "5 ms, interval"),
    point(3, null),
    point(4, "5 ms, interval"),
    point(5, "5 ms, priority"),
  ];
  const changes = settingChanges(points);
  expect(changes).toEqual([
    { time: 1, setting: "5 ms, interval" },
    { time: 5, setting: "5 ms, priority" },
  ]);
  expect(settingAt(changes ?? [], 0)).toBe("unknown");
  expect(settingAt(changes ?? [], 4.5)).toBe("5 ms, interval");
  expect(settingAt(changes ?? [], 9)).toBe("5 ms, priority");
});

test("one setting all the time is no change", () => {
  expect(settingChanges([point(0, null)])).toBeUndefined();
  expect(settingChanges([point(1, "5 ms"), point(2, "5 ms")])).toBeUndefined();
});
