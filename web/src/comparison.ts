// Rows of the comparison: each a name, a span of time and a selection. The address holds them in
// the API's form, NAME~FROM~TO~QUERY, each part escaped.

import { EVERYTHING, go, parse, type Selection, selectionParameters } from "./address";
import { clock } from "./format";
import { moments } from "./range";

export interface Row {
  /** "" where the table names the row by its configuration. */
  name: string;
  from: number;
  to: number;
  selection: Selection;
}

// encodeURIComponent does not escape "~", which separates the parts.
const escaped = (text: string) => encodeURIComponent(text).replaceAll("~", "%7E");

export function formatRow({ name, from, to, selection }: Row): string {
  const query = new URLSearchParams(selectionParameters(selection)).toString();
  return [escaped(name), from.toFixed(3), to.toFixed(3), query.replaceAll("~", "%7E")].join("~");
}

export function parseRow(text: string): Row | null {
  const [name = "", from = "", to = "", query = ""] = text.split("~");
  if (!(Number(to) > Number(from))) return null;
  const parameters = new URLSearchParams(query);
  try {
    return {
      name: decodeURIComponent(name),
      from: Number(from),
      to: Number(to),
      selection: {
        ...EVERYTHING,
        hosts: parameters.getAll("host"),
        groups: parameters.getAll("group"),
        pids: parameters.getAll("pid"),
        recording: parameters.get("recording") ?? "",
      },
    };
  } catch {
    return null;
  }
}

// The recorder's server refuses a target of more than 16 KiB.
const LONGEST_QUERY = 12_000;

/** The rows split into parameters of requests, none too long unless a single row is too long. */
export function questionsOf(rows: string[]): [string, string][][] {
  const questions: [string, string][][] = [];
  let length = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const added = new URLSearchParams([["row", row]]).toString().length + 1;
    length += added;
    if (length > LONGEST_QUERY) {
      questions.push([]);
      length = added;
    }
    questions.at(-1)?.push(["row", row]);
  }
  return questions;
}

/** Adds the present range and selection as a row, and stays on the page. */
export function addRow(name = ""): void {
  const here = parse(location.hash);
  const { from, to } = moments(here.range, Date.now() / 1000);
  const row = {
    name: name || `${clock(from)} to ${clock(to)}`,
    from,
    to,
    selection: here.selection,
  };
  go({ rows: [...here.rows, formatRow(row)] });
}
