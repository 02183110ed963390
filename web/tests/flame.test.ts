import { expect, test } from "vitest";
import { fitted, placed, reached, search } from "../../python/headway/profile/flame_calls.js";
import { flameCalls, kindsOf, legendOf } from "../src/flame";
import type { CallRow } from "../src/model";

const row = (
  name: string,
  caller: number | null,
  waited: number,
  more: Partial<CallRow> = {},
): CallRow => ({
  function: name,
  file: name === "all" ? "" : "/srv/shop/app.py",
  line: name === "all" ? 0 : 7,
  caller,
  waited,
  self: 0,
  small: 0,
  small_waited: 0,
  ...more,
});

const ROWS = [
  row("all", null, 10),
  row("page", 0, 7, { self: 1 }),
  row("job", 0, 3, { file: "/srv/shop/jobs.py", self: 3 }),
  row("score", 1, 4, { self: 4 }),
  row("page", 1, 2, { small: 3, small_waited: 0.5 }),
];

const named = (label: string) => {
  const calls = flameCalls(ROWS);
  const call = calls.find((each) => each.label.startsWith(label));
  if (!call) throw new Error(label);
  return { calls, call };
};

test("calls lie side by side below their callers, and small ones at the end", () => {
  const calls = flameCalls(ROWS);
  expect(calls.map(({ label, depth, x, width }) => [label, depth, x, width])).toEqual([
    ["all: 10 s", 0, 0, 1],
    ["page (app.py:7)", 1, 0, 0.7],
    ["job (jobs.py:7)", 1, 0.7, 0.3],
    ["score (app.py:7)", 2, 0, 0.4],
    ["page (app.py:7)", 2, 0.4, 0.2],
    ["(3 small calls)", 3, 0.4, 0.05],
  ]);
  expect(calls[1]?.title).toBe(
    "page (/srv/shop/app.py:7)\n7 s, 70.0 % of all waiting\nwithout its callees: 1 s, 10.0 %",
  );
  expect(new Set(calls.map(({ path }) => path)).size).toBe(calls.length);
  expect(flameCalls([row("all", null, 0)])).toEqual([]);
  expect(flameCalls([])).toEqual([]);
});

test("the file in whose code others waited longest has the first colour", () => {
  expect(legendOf(ROWS)).toEqual([
    { kind: "file-0", text: "shop/app.py" },
    { kind: "file-1", text: "shop/jobs.py" },
  ]);
  const many = [
    row("all", null, 12),
    ...[...Array(12)].map((_, at) => row("f", 0, 1, { file: `f${at}.py`, self: 12 - at })),
  ];
  expect(legendOf(many)).toHaveLength(9);
  expect(legendOf(many).at(-1)).toEqual({ kind: "file-8", text: "4 other files" });
});

test("a file has the colour that it has in the other graph", () => {
  const rows = [
    row("all", null, 5),
    row("other", 0, 4, { file: "/srv/shop/other.py", self: 4 }),
    row("job", 0, 1, { file: "/srv/shop/jobs.py", self: 1 }),
  ];
  const kinds = kindsOf(rows, ROWS);
  expect(legendOf(rows, kinds)).toEqual([
    { kind: "file-1", text: "shop/jobs.py" },
    { kind: "file-2", text: "shop/other.py" },
  ]);
  expect(flameCalls(rows, kinds).map(({ kind }) => kind)).toEqual(["root", "file-2", "file-1"]);
});

test("a zoom shows a call with its callers and what it calls", () => {
  const { calls, call } = named("page");
  const places = calls.map((each) => {
    const place = placed(each, call, 10, 700);
    return place && { ...place, x: Math.round(place.x), width: Math.round(place.width) };
  });
  expect(places).toEqual([
    { x: 10, width: 700, outer: true },
    { x: 10, width: 700, outer: false },
    null,
    { x: 10, width: 400, outer: false },
    { x: 410, width: 200, outer: false },
    { x: 410, width: 50, outer: false },
  ]);
});

test("a search counts a call within a call that matches once, and never the whole", () => {
  const { calls } = named("page");
  const { found, waited } = search(calls, "PAGE");
  expect([...found].map(({ depth }) => depth)).toEqual([1, 2]);
  expect(waited).toBe(7);
  expect(search(calls, "jobs.py").waited).toBe(3);
  expect(search(calls.slice(0, 5), "all").found.size).toBe(0);
  expect(search(calls, "").found.size).toBe(0);
});

test("arrows lead to the caller, the widest callee and the neighbours in sight", () => {
  const { calls, call } = named("page");
  const [root, , job, score, inner] = calls;
  const all = () => true;
  expect(reached(call, "ArrowUp", all)).toBe(root);
  expect(reached(call, "ArrowDown", all)).toBe(score);
  expect(reached(call, "ArrowRight", all)).toBe(job);
  expect(reached(call, "ArrowLeft", all)).toBe(undefined);
  expect(score && reached(score, "ArrowRight", all)).toBe(inner);
  expect(score && reached(score, "ArrowRight", (each) => each !== inner)).toBe(undefined);
  expect(reached(call, "Tab", all)).toBe(undefined);
});

test("labels are cut to columns, of which some characters have two", () => {
  expect(fitted("score", 5)).toBe("score");
  expect(fitted("score (app.py:7)", 8)).toBe("score (~");
  expect(fitted("\u4e2d\u6587\u4e2d", 4)).toBe("\u4e2d~");
  expect(fitted("score", 2)).toBe("");
});
