// A table of figures with a name for each row. A column's head sorts by it, greatest first; ties
// keep the recorder's order.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { share as shareText } from "../format";
import type { Colour } from "../theme";

export interface Column<T> {
  label: string;
  cell: (row: T) => ComponentChildren;
  /** The sort key; without it the column cannot be sorted. */
  by?: (row: T) => number | null | undefined;
  /** The column holds words, not figures, and is left-aligned. */
  text?: boolean;
}

interface Props<T> {
  title: string;
  note?: string;
  /** The head of the first column; "Name" without it. */
  heading?: string;
  rows: T[];
  name: (row: T) => ComponentChildren;
  id: (row: T) => string;
  columns: Column<T>[];
  empty?: string;
}

interface Order {
  label: string;
  up: boolean;
}

function sorted<T>(rows: T[], columns: Column<T>[], order: Order | null): T[] {
  const by = columns.find(({ label }) => label === order?.label)?.by;
  if (!by || !order) return rows;
  const sign = order.up ? 1 : -1;
  return [...rows].sort((a, b) => sign * ((by(a) ?? -1) - (by(b) ?? -1)));
}

export function Figures<T>({ title, note, heading, rows, name, id, columns, empty }: Props<T>) {
  const [order, setOrder] = useState<Order | null>(null);
  const pick = (label: string) =>
    setOrder(order?.label === label ? { label, up: !order.up } : { label, up: false });
  return (
    <section class="card" aria-label={title}>
      <header>
        <h3>
          {title} {note && <small>{note}</small>}
        </h3>
      </header>
      {rows.length === 0 ? (
        <p class="note">{empty ?? "Nothing in this range."}</p>
      ) : (
        <div class="scroll">
          <table class="numbers">
            <thead>
              <tr>
                <th scope="col">{heading ?? "Name"}</th>
                {columns.map((column) => (
                  <Head key={column.label} column={column} order={order} onPick={pick} />
                ))}
              </tr>
            </thead>
            <tbody>
              {sorted(rows, columns, order).map((row) => (
                <tr key={id(row)}>
                  <th scope="row">{name(row)}</th>
                  {columns.map(({ label, cell, text }) => (
                    <td key={label} class={text ? "text" : ""}>
                      {cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Head<T>(props: {
  column: Column<T>;
  order: Order | null;
  onPick: (label: string) => void;
}) {
  const { label, by, text } = props.column;
  const order = props.order?.label === label ? props.order : null;
  return (
    <th
      scope="col"
      class={text ? "text" : ""}
      aria-sort={order ? (order.up ? "ascending" : "descending") : undefined}
    >
      {by ? (
        <button type="button" class="sort" onClick={() => props.onPick(label)}>
          {label}
          <span aria-hidden="true">{order ? (order.up ? " ▴" : " ▾") : ""}</span>
        </button>
      ) : (
        label
      )}
    </th>
  );
}

/** A share as a bar beside its number. */
export function Bar({ share, colour }: { share: number; colour: Colour }) {
  return (
    <span class="share">
      <span class={`rail ${colour}`} aria-hidden="true">
        <i style={{ width: `${Math.min(100, Math.max(0, share * 100))}%` }} />
      </span>
      <span class="figure">{shareText(share)}</span>
    </span>
  );
}
