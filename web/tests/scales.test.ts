import { expect, test } from "vitest";
import type { Histogram } from "../src/model";
import {
  bins,
  densities,
  evenBins,
  extent,
  linearTicks,
  logTicks,
  lowerBound,
  shareAbove,
  weights,
} from "../src/scales";

/** As the API answers: upper bounds of headway_measure's buckets. */
function histogram(buckets: [number, number][]): Histogram {
  const count = buckets.reduce((sum, [, number]) => sum + number, 0);
  const max = buckets.at(-1)?.[0] ?? null;
  return {
    count,
    sum: 0,
    min: null,
    max,
    p50: null,
    p90: null,
    p95: null,
    p99: null,
    p999: null,
    buckets,
  };
}

test("buckets are sixteenths of a power of two from 512 ns on", () => {
  expect(lowerBound(512e-9)).toBe(0);
  expect(lowerBound(544e-9)).toBeCloseTo(512e-9, 12);
  expect(lowerBound(1024e-9)).toBeCloseTo(992e-9, 12);
  expect(lowerBound(1088e-9)).toBeCloseTo(1024e-9, 12);
  expect(lowerBound(5_242_880e-9)).toBeCloseTo(4_980_736e-9, 12);
});

test.each([4, 8, 16])(
  "no count is lost or moved over a bar's edge, %s bars to a power",
  (perPower) => {
    const upper = [512e-9, 544e-9, 1088e-9, 5_242_880e-9, 10_485_760e-9, 20_971_520e-9];
    const given = histogram(upper.map((high, index): [number, number] => [high, index + 1]));
    const made = bins(given, 1e-6, 0.1, perPower);
    expect(made.reduce((sum, bin) => sum + bin.count, 0)).toBe(21);
    const holding = (high: number) =>
      made.find((bin) => bin.low <= high - 1e-9 && high - 1e-9 < bin.high)?.count;
    expect(holding(5_242_880e-9)).toBe(4);
    expect(holding(10_485_760e-9)).toBe(5);
    expect(holding(20_971_520e-9)).toBe(6);
  },
);

test("bars follow each other without a gap and reach the end", () => {
  const made = bins(histogram([[0.09, 1]]), 1e-6, 0.1, 4);
  for (const [index, bin] of made.slice(1).entries()) expect(bin.low).toBe(made[index]?.high);
  expect(made.at(-1)?.high).toBeGreaterThanOrEqual(0.1);
});

test("shares of the number and of the time", () => {
  const made = [
    { low: 0, high: 2, count: 3 },
    { low: 2, high: 4, count: 1 },
  ];
  expect(weights(made, "number")).toEqual([0.75, 0.25]);
  expect(weights(made, "time")).toEqual([0.5, 0.5]);
  expect(weights([{ low: 0, high: 1, count: 0 }], "number")).toEqual([0]);
});

test("the share longer than a limit", () => {
  const given = histogram([
    [1024e-9, 3],
    [5_242_880e-9, 1],
  ]);
  expect(shareAbove(given, 0.001)).toBeCloseTo(0.25, 9);
  expect(shareAbove(given, 1)).toBe(0);
  expect(shareAbove(histogram([]), 0.001)).toBeNull();
});

test("axes end at round numbers", () => {
  expect(extent([{ ...histogram([]), max: 0.026 }, null])).toEqual({ from: 1e-6, to: 0.1 });
  expect(extent([{ ...histogram([]), max: 0.1 }])).toEqual({ from: 1e-6, to: 0.1 });
  expect(logTicks(1e-6, 1e-3, 4)).toEqual([1e-6, 1e-5, 1e-4, 1e-3]);
  expect(logTicks(1e-6, 1e-5, 20)).toEqual([1e-6, 2e-6, 5e-6, 1e-5]);
  expect(linearTicks(0.9, 4)).toEqual([0, 0.25, 0.5, 0.75, 1]);
  expect(linearTicks(0, 4)).toEqual([0, 1]);
});

test("even bars share out a bucket that lies across their edges, and lose nothing", () => {
  const given = histogram([
    [1088e-9, 8],
    [10_485_760e-9, 4],
    [0.2, 1],
  ]);
  const made = evenBins(given, 0.01, 100);
  expect(made[0]?.count).toBe(8);
  expect(made.reduce((sum, bin) => sum + bin.count, 0)).toBeCloseTo(13, 9);
  expect(made.at(-1)?.count).toBeGreaterThan(1);
});

test("a flat density is drawn flat, though the bars of a power of two differ in width", () => {
  const made = bins(histogram([]), 1e-3, 0.1, 4);
  const shares = made.map(({ low, high }) => Math.log2(high / low));
  for (const height of densities(made, shares, 4)) expect(height).toBeCloseTo(0.25, 9);
});
