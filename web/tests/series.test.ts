import { expect, test } from "vitest";
import type { Series, Summary } from "../src/model";
import { stepOf } from "../src/range";
import { aligned, joined } from "../src/series";

const point = (time: number, requests: number) => ({
  time,
  summary: { requests } as Summary,
  setting: null,
});

function series(from: number, to: number, step: number, points: Series["points"]): Series {
  return { from, to, step, switch_intervals: [], points, markers: [] };
}

test("news take the place of steps that were not over, and what is too old goes", () => {
  const before = series(100, 110, 2, [point(100, 1), point(102, 2), point(106, 3), point(108, 4)]);
  const news = series(106, 114, 2, [point(106, 30), point(108, 40), point(110, 50), point(112, 1)]);
  const after = joined(before, news, 10, 114);
  expect(after?.points.map(({ time, summary }) => [time, summary?.requests])).toEqual([
    [106, 30],
    [108, 40],
    [110, 50],
    [112, 1],
  ]);
  expect([after?.from, after?.to]).toEqual([104, 114]);
});

test("a series that is younger than the range begins when it did", () => {
  const before = series(105, 110, 1, [point(105, 1), point(109, 2)]);
  const news = series(109, 112, 1, [point(109, 3), point(111, 4)]);
  expect(joined(before, news, 300, 112)?.from).toBe(105);
  expect(joined(before, news, 5, 112)?.from).toBe(107);
});

test("a marker is told once", () => {
  const marker = (time: number) => ({ time, event: "process_started" }) as Series["markers"][0];
  const before = { ...series(100, 110, 2, [point(100, 1)]), markers: [marker(101), marker(107)] };
  const news = { ...series(106, 112, 2, [point(106, 3)]), markers: [marker(107), marker(111)] };
  expect(joined(before, news, 12, 112)?.markers.map(({ time }) => time)).toEqual([101, 107, 111]);
});

test("steps of another length are not joined", () => {
  const before = series(100, 110, 2, [point(100, 1)]);
  expect(joined(before, series(106, 112, 5, [point(105, 1)]), 10, 112)).toBeNull();
  expect(joined(before, series(106, 112, 2, []), 10, 112)).toBeNull();
});

test("whole steps are asked for, and so many points that the step stays", () => {
  const asked = Object.fromEntries(aligned(1_000_003.4, 1_000_011.2, 5));
  expect(asked).toEqual({ from: "1000000", to: "1000015", points: "3" });
  expect((Number(asked.to) - Number(asked.from)) / Number(asked.points)).toBe(5);
});

test("steps are round, at most three hundred, and never shorter than a tick", () => {
  expect([10, 300, 900, 3600, 21_600, 86_400, 604_800, 2_592_000].map(stepOf)).toEqual([
    1, 1, 5, 15, 120, 300, 3600, 10_800,
  ]);
  expect(stepOf(400 * 86_400)).toBe(172_800);
});
