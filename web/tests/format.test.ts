import { describe, expect, test } from "vitest";
import * as format from "../src/format";

describe("durations", () => {
  test.each([
    [0, "0 s"],
    [1.5e-7, "0.15 µs"],
    [4.5e-5, "45 µs"],
    [0.00123, "1.23 ms"],
    [0.0131, "13.1 ms"],
    [0.142, "142 ms"],
    [0.9996, "1 s"],
    [12.34, "12.3 s"],
    [1234, "1,234 s"],
    [null, "–"],
    [Number.NaN, "–"],
  ])("%s is %s", (value, text) => expect(format.seconds(value)).toBe(text));

  test.each([
    [45, "45 s"],
    [725, "12 min 5 s"],
    [3600, "1 h"],
    [12_000, "3 h 20 min"],
    [90_000, "1 d 1 h"],
    [86_400, "1 d"],
  ])("a span of %s is %s", (value, text) => expect(format.span(value)).toBe(text));
});

test("three digits, and no zeros that say nothing", () => {
  expect([0, 1, 0.5, 12.5, 123.4, 99_999, 0.0625].map(format.digits)).toEqual([
    "0",
    "1",
    "0.5",
    "12.5",
    "123",
    "99,999",
    "0.063",
  ]);
});

test("units of their own", () => {
  expect(format.cores(1)).toBe("1 core");
  expect(format.cores(1.854)).toBe("1.85 cores");
  expect(format.bytes(134_217_728)).toBe("128 MiB");
  expect(format.bytes(0)).toBe("0 B");
  expect(format.bytesPerSecond(1536)).toBe("1.5 KiB/s");
  expect(format.perMinute(37_200)).toBe("37.2k rpm");
  expect(format.perMinute(120)).toBe("120 rpm");
  expect(format.share(0.412)).toBe("41.2 %");
  expect(format.share(1)).toBe("100 %");
  expect(format.share(0)).toBe("0 %");
});

test("a trace is not nothing", () => {
  expect(format.share(0.0001)).toBe("< 0.1 %");
});

test("a ratio to nothing is not known", () => {
  expect(format.ratio(2, 0)).toBe("–");
  expect(format.ratio(2, null)).toBe("–");
  expect(format.ratio(113, 100)).toBe("×1.13");
});

test("nouns in number", () => {
  expect(format.counted(1, "take")).toBe("1 take");
  expect(format.counted(30_000, "take")).toBe("30,000 takes");
  expect(format.counted(2, "process")).toBe("2 processes");
});

test("a value that differs between processes is listed", () => {
  expect(format.varying([0.002, 0.005], format.seconds)).toBe("2 ms, 5 ms");
  expect(format.varying(0.005, format.seconds)).toBe("5 ms");
  expect(format.varying(null, format.seconds)).toBe("–");
});

test("evidence in the unit it came with", () => {
  expect(format.inUnit(0.52, "share")).toBe("52.0 %");
  expect(format.inUnit(0.0131, "s")).toBe("13.1 ms");
  expect(format.inUnit(12, "requests")).toBe("12 requests");
  expect(format.inUnit("deadline", "")).toBe("deadline");
});

test("an interval says its day once", () => {
  const noon = new Date(2026, 10, 22, 12, 0, 0).getTime() / 1000;
  expect(format.interval(noon, noon + 65)).toBe("2026-11-22 12:00:00 – 12:01:05");
  expect(format.interval(noon, noon + 86_400)).toBe("2026-11-22 12:00:00 – 2026-11-23 12:00:00");
  expect(format.timeTick(noon, 1)).toBe("12:00:00");
  expect(format.timeTick(noon, 300)).toBe("12:00");
  expect(format.timeTick(noon, 86_400)).toBe("11-22");
});
