// The page's address holds all of its state - page, range, selection, comparison - so that a
// view can be shared and the browser's Back undoes a change. The state is in the part after #,
// which browsers do not send to servers.

import { useEffect, useState } from "preact/hooks";
import { DEFAULT, type Range } from "./range";

export const PAGES = [
  ["overview", "Overview"],
  ["gil", "GIL"],
  ["loops", "Event loops"],
  ["capacity", "Capacity"],
  ["endpoints", "Endpoints"],
  ["slow", "Slow requests"],
  ["lifecycle", "Lifecycle"],
  ["gc", "GC"],
  ["compare", "Compare"],
] as const;

export type PageName = (typeof PAGES)[number][0];

export interface Selection {
  hosts: string[];
  groups: string[];
  pids: string[];
  recording: string;
}

export interface Address {
  page: PageName;
  range: Range;
  selection: Selection;
  /** Rows of the comparison, as the API takes them: NAME~FROM~TO~QUERY, each part escaped. */
  rows: string[];
  /** Parameters that only the page itself understands. */
  view: Record<string, string>;
}

export const EVERYTHING: Selection = { hosts: [], groups: [], pids: [], recording: "" };

const OWN = new Set(["last", "from", "to", "host", "group", "pid", "recording", "row"]);

function parseRange(parameters: URLSearchParams): Range {
  const from = Number(parameters.get("from"));
  const to = Number(parameters.get("to"));
  if (from > 0 && to > from) return { from, to };
  const last = Number(parameters.get("last"));
  return last > 0 && last <= 400 * 86_400 ? { last } : DEFAULT;
}

/** Parses the part after #. Omits what it cannot interpret, since people also type addresses. */
export function parse(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const page = PAGES.find(([name]) => name === path)?.[0] ?? "overview";
  const view: Record<string, string> = {};
  for (const [name, value] of parameters) if (!OWN.has(name)) view[name] = value;
  return {
    page,
    range: parseRange(parameters),
    selection: {
      hosts: parameters.getAll("host"),
      groups: parameters.getAll("group"),
      pids: parameters.getAll("pid").filter((pid) => /^\d+$/.test(pid)),
      recording: parameters.get("recording") ?? "",
    },
    rows: parameters.getAll("row"),
    view,
  };
}

export function selectionParameters(selection: Selection): [string, string][] {
  return [
    ...selection.hosts.map((host): [string, string] => ["host", host]),
    ...selection.groups.map((group): [string, string] => ["group", group]),
    ...selection.pids.map((pid): [string, string] => ["pid", pid]),
    ...(selection.recording ? [["recording", selection.recording] as [string, string]] : []),
  ];
}

export function format(address: Address): string {
  const range: [string, string][] =
    "last" in address.range
      ? address.range.last === (DEFAULT as { last: number }).last
        ? []
        : [["last", String(Math.round(address.range.last))]]
      : [
          ["from", address.range.from.toFixed(3)],
          ["to", address.range.to.toFixed(3)],
        ];
  const query = new URLSearchParams([
    ...range,
    ...selectionParameters(address.selection),
    ...address.rows.map((row): [string, string] => ["row", row]),
    ...Object.entries(address.view).filter(([, value]) => value !== ""),
  ]).toString();
  return `#/${address.page}${query ? `?${query}` : ""}`;
}

/** Goes to the changed address, without the parameters that concern only the page left. */
export function go(change: Partial<Address>): void {
  location.hash = target(change);
}

/** As `go`, but without a history entry: for text that changes letter by letter. */
export function amend(change: Partial<Address>): void {
  history.replaceState(null, "", target(change));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function target(change: Partial<Address>): string {
  const here = parse(location.hash);
  const leaves = change.page !== undefined && change.page !== here.page;
  return format({ ...here, ...(leaves ? { view: {} } : {}), ...change });
}

/** Changes one parameter of the page's own. */
export function look(name: string, value: string): void {
  amend({ view: { ...parse(location.hash).view, [name]: value } });
}

export function useAddress(): Address {
  const [address, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const follow = () => set(parse(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return address;
}
