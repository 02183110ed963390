import { expect, test } from "vitest";
import { beside } from "../src/lines";

const line = (name: string, waited: number, endpoint = "/") => ({
  function: name,
  file: "app.py",
  line: 7,
  endpoint,
  waited,
});

test("without an earlier range each line has its rate", () => {
  const [row] = beside({ seconds: 10, lines: [line("work", 5)] }, null);
  expect(row).toMatchObject({ function: "work", rate: 0.5, before: null });
});

test("ranges of different lengths are compared by rate, and no line is left out", () => {
  const now = { seconds: 10, lines: [line("work", 5), line("new", 1)] };
  const before = { seconds: 100, lines: [line("gone", 20), line("work", 10)] };
  const rows = beside(now, before).map(({ function: name, waited, rate, before }) => [
    name,
    waited,
    rate,
    before,
  ]);
  expect(rows).toEqual([
    ["work", 5, 0.5, 0.1],
    ["new", 1, 0.1, 0],
    ["gone", 0, 0, 0.2],
  ]);
});

test("one line of two endpoints is two rows", () => {
  const lines = [line("work", 5, "/a"), line("work", 3, "/b")];
  const rows = beside({ seconds: 1, lines }, { seconds: 1, lines });
  expect(new Set(rows.map(({ key }) => key)).size).toBe(2);
  expect(rows.map(({ rate, before }) => [rate, before])).toEqual([
    [5, 5],
    [3, 3],
  ]);
});

test("a range without a length has no rates", () => {
  expect(beside({ seconds: 0, lines: [line("work", 5)] }, null)[0]?.rate).toBe(0);
});
