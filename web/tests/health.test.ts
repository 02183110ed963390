import { expect, test } from "vitest";
import { losses, remarks } from "../src/health";

test("nothing is said while nothing is lost", () => {
  expect(losses({ received: 10, malformed: 0, store: { error: null, not_stored: 0 } })).toEqual([]);
  expect(losses({ received: 10, store: null })).toEqual([]);
});

test("every loss is said with its number, and why the store does not write", () => {
  const said = losses({
    malformed: 1200,
    sequence_gaps: 3,
    store: { error: "disk full", not_stored: 7 },
  });
  expect(said).toEqual([
    "1,200 malformed datagrams dropped",
    "3 datagrams lost on the way",
    "7 datagrams not written to the store",
    "store: disk full",
  ]);
});

test("what only changed the detail is a remark, not a loss", () => {
  const health = { unsent: 4, events_left_out: 371, clocks_off: 0 };
  expect(losses(health)).toEqual([]);
  expect(remarks(health)).toEqual([
    "4 reports that could not be sent, and became part of the next one",
    "371 events left out, because only so many are kept of each minute",
  ]);
});
