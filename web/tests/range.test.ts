import { describe, expect, test } from "vitest";
import { moved, parameters, parseMoment, refreshSeconds, zoomed } from "../src/range";

const NOW = new Date(2026, 10, 22, 14, 30, 0).getTime() / 1000;
const at = (...parts: [number, number, number, number?, number?, number?]) =>
  new Date(
    parts[0],
    parts[1] - 1,
    parts[2],
    parts[3] ?? 0,
    parts[4] ?? 0,
    parts[5] ?? 0,
  ).getTime() / 1000;

describe("a moment as people type it", () => {
  test.each([
    ["now", NOW],
    ["", NOW],
    ["-2h", NOW - 7200],
    ["- 90", NOW - 90],
    ["-1.5 h", NOW - 5400],
    ["14:00", at(2026, 11, 22, 14)],
    ["14:00:07", at(2026, 11, 22, 14, 0, 7)],
    ["23:50", at(2026, 11, 21, 23, 50)],
    ["2026-11-20", at(2026, 11, 20)],
    ["2026-11-20 08:15", at(2026, 11, 20, 8, 15)],
    ["2026-11-20T08:15:30", at(2026, 11, 20, 8, 15, 30)],
    ["1763800000", 1_763_800_000],
  ])("%s", (text, moment) => expect(parseMoment(text, NOW)).toBe(moment));

  test.each(["soon", "25:00", "12:75", "2026-02-30", "2026-13-01", "-2y", "12", "<b>"])(
    "%s is none",
    (text) => expect(parseMoment(text, NOW)).toBeNull(),
  );
});

test("a live range is asked for relative to now, a fixed one in full", () => {
  expect(parameters({ last: 900 })).toEqual([["from", "-900"]]);
  expect(parameters({ from: 10, to: 20.5 })).toEqual([
    ["from", "10.000"],
    ["to", "20.500"],
  ]);
});

test("what shows a week is not asked for every second, and a fixed range not again", () => {
  expect(refreshSeconds({ last: 300 })).toBe(1);
  expect(refreshSeconds({ last: 3600 })).toBe(12);
  expect(refreshSeconds({ last: 604_800 })).toBe(60);
  expect(refreshSeconds({ from: 1, to: 2 })).toBeNull();
});

test("a step back from live is fixed, and no step goes beyond now", () => {
  expect(moved({ last: 100 }, -0.5, 1000)).toEqual({ from: 850, to: 950 });
  expect(moved({ last: 100 }, 0.5, 1000)).toEqual({ last: 100 });
  expect(moved({ from: 800, to: 900 }, 0.5, 1000)).toEqual({ from: 850, to: 950 });
  expect(moved({ from: 890, to: 990 }, 0.5, 1000)).toEqual({ from: 900, to: 1000 });
});

test("zoom keeps the middle, live ranges end now, and nothing gets shorter than a second", () => {
  expect(zoomed({ from: 100, to: 200 }, 0.5, 1000)).toEqual({ from: 125, to: 175 });
  expect(zoomed({ last: 300 }, 2, 1000)).toEqual({ last: 600 });
  expect(zoomed({ from: 900, to: 1000 }, 2, 1000)).toEqual({ from: 800, to: 1000 });
  expect(zoomed({ from: 100, to: 101 }, 0.5, 1000)).toEqual({ from: 100, to: 101 });
});
