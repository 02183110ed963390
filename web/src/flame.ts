// The calls of a flame graph, as the recorder's tree has them.

import type { Call } from "../../python/headway/profile/flame_calls.js";
import { count, counted, seconds, share } from "./format";
import { label, shortLabel } from "./frames";
import type { CallRow } from "./model";

export interface FlameCall extends Call<FlameCall> {
  /** The names of the call and its callers, which identify it in later answers too. */
  path: string;
  depth: number;
  title: string;
  /** The class of its colour. */
  kind: string;
}

/** Calls with less of the whole are not drawn. */
const LEAST_SHARE = 0.001;
/** Files with a colour of their own. */
export const COLOURS = 8;

/** The calls with their places in a graph of width 1, each after its caller. */
export function flameCalls(
  rows: CallRow[],
  kinds: Map<string, string> = kindsOf(rows),
  ofWhat = "all waiting",
): FlameCall[] {
  const whole = rows[0]?.waited ?? 0;
  if (!whole) return [];
  const calls: FlameCall[] = [];
  const byRow: FlameCall[] = [];
  // Where the next callee of a call begins.
  const next = new Map<FlameCall, number>();
  const add = (parent: FlameCall | undefined, waited: number, texts: Texts): FlameCall => {
    const x = parent ? (next.get(parent) ?? parent.x) : 0;
    const call: FlameCall = {
      ...texts,
      path: `${parent?.path ?? ""}\n${texts.name}`,
      depth: parent ? parent.depth + 1 : 0,
      x,
      width: waited / whole,
      waited,
      parent,
      children: [],
    };
    if (parent) next.set(parent, x + call.width);
    parent?.children.push(call);
    calls.push(call);
    return call;
  };
  for (const row of rows) {
    const parent = row.caller === null ? undefined : byRow[row.caller];
    byRow.push(add(parent, row.waited, textsOf(row, whole, parent ? kinds : null, ofWhat)));
  }
  rows.forEach((row, index) => {
    if (row.small_waited < LEAST_SHARE * whole) return;
    const name = `(${counted(row.small, "small call")})`;
    const title = `${name}\n${figures(row.small_waited, whole)} of ${ofWhat}`;
    add(byRow[index], row.small_waited, { name, label: name, title, kind: "rest" });
  });
  return calls;
}

type Texts = Pick<FlameCall, "name" | "label" | "title" | "kind">;

function textsOf(
  row: CallRow,
  whole: number,
  kinds: Map<string, string> | null,
  ofWhat: string,
): Texts {
  const name = label(row);
  let title = `${name}\n${figures(row.waited, whole)} of ${ofWhat}`;
  if (row.self && row.self !== row.waited) {
    title += `\nwithout its callees: ${figures(row.self, whole)}`;
  }
  if (!kinds) return { name, label: `${name}: ${seconds(row.waited)}`, title, kind: "root" };
  return { name, label: shortLabel(row), title, kind: kinds.get(row.file) ?? "none" };
}

function figures(waited: number, whole: number): string {
  return `${seconds(waited)}, ${share(waited / whole)}`;
}

/**
 * The class of the colour of each file. The files of `alike` come first, so they have the colours
 * of that graph. Both lists begin with the file whose code made others wait longest.
 */
export function kindsOf(rows: CallRow[], alike: CallRow[] = []): Map<string, string> {
  const files = new Set([...ranked(alike), ...ranked(rows)]);
  return new Map([...files].map((file, at) => [file, `file-${Math.min(at, COLOURS)}`]));
}

function ranked(rows: CallRow[]): string[] {
  const sums = new Map<string, number>();
  for (const { file, self } of rows) if (file) sums.set(file, (sums.get(file) ?? 0) + self);
  const sorted = [...sums].sort(([a, ofA], [b, ofB]) => ofB - ofA || (a < b ? -1 : 1));
  return sorted.map(([file]) => file);
}

/** The colours of the calls with their files, and how many files share the last one. */
export function legendOf(
  rows: CallRow[],
  kinds: Map<string, string> = kindsOf(rows),
): { kind: string; text: string }[] {
  const used = new Set(rows.map(({ file }) => file));
  const files = [...kinds].filter(([file]) => used.has(file));
  const last = `file-${COLOURS}`;
  const legend = files
    .filter(([, kind]) => kind !== last)
    .map(([file, kind]) => ({ kind, text: file.split("/").slice(-2).join("/") }));
  const more = files.length - legend.length;
  if (more > 0) {
    const text = more === 1 ? "1 other file" : `${count(more)} other files`;
    legend.push({ kind: last, text });
  }
  return legend;
}
