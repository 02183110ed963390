import { expect, test } from "vitest";
import { format, parse } from "../src/address";
import { formatRow, parseRow, questionsOf } from "../src/comparison";

const HOSTILE = "</script><img src=x onerror=alert(1)>~&=#%";

test("an address comes back as it was written", () => {
  const address = {
    page: "gil" as const,
    range: { from: 1000.5, to: 2000 },
    selection: { hosts: ["web1"], groups: ["", HOSTILE], pids: ["12"], recording: "before" },
    rows: ["a~1.000~2.000~", "b~3.000~4.000~group=x"],
    view: { metric: "hold" },
  };
  expect(parse(format(address))).toEqual(address);
});

test("what makes no sense is left out", () => {
  const address = parse("#/nowhere?from=9&to=3&last=-5&pid=1;drop");
  expect(address.page).toBe("overview");
  expect(address.range).toEqual({ last: 300 });
  expect(address.selection.pids).toEqual([]);
});

test("nothing is written for what is as usual", () => {
  expect(format(parse(""))).toBe("#/overview");
  expect(format(parse("#/slow?last=300"))).toBe("#/slow");
  expect(format(parse("#/slow?last=900"))).toBe("#/slow?last=900");
});

test("a row of the comparison comes back, whatever its name", () => {
  const row = {
    name: HOSTILE,
    from: 1000,
    to: 1060,
    selection: { hosts: ["h~1"], groups: [HOSTILE], pids: [], recording: "" },
  };
  const text = formatRow(row);
  expect(text.split("~")).toHaveLength(4);
  expect(parseRow(text)).toEqual(row);
});

test("a row that is none is told from one", () => {
  expect(parseRow("name")).toBeNull();
  expect(parseRow("name~20~10~")).toBeNull();
  expect(parseRow("%E0%A4%A~1~2~")).toBeNull();
});

test("a question about many rows is asked in parts that the recorder's server takes", () => {
  const rows = Array.from({ length: 200 }, (_, index) =>
    formatRow({
      name: `group ${index}`,
      from: 1,
      to: 2,
      selection: { hosts: ["\u{1f308}".repeat(10)], groups: [HOSTILE], pids: [], recording: "" },
    }),
  );
  const questions = questionsOf(rows);
  expect(questions.flat()).toEqual(rows.map((row) => ["row", row]));
  for (const each of questions) {
    expect(new URLSearchParams(each).toString().length).toBeLessThan(16_000);
  }
  expect(questionsOf([])).toEqual([]);
  expect(questionsOf(["x".repeat(20_000), "y"])).toHaveLength(2);
});
