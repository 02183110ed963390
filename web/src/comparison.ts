// Rows of the comparison: a name, a span of time and a selection each, kept in the address as the API
// takes them, NAME~FROM~TO~QUERY, each part escaped.

import { EVERYTHING, go, parse, type Selection, selectionParameters } from "./address";
import { clock } from "./format";
import { moments } from "./range";

export interface Row {
  /** "" where the table shall name it by its configuration. */
  name: string;
  from: number;
  to: number;
  selection: Selection;
}

// encodeURIComponent leaves "~" alone, and it separates the parts.
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

/** Adds what is shown, as it is at this moment, and stays on the page. */
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
