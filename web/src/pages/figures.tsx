// A table of figures with a name to each row. Sorting by a column is the reader's; ties keep the order
// that the recorder gave.

import type { ComponentChildren } from "preact";
import { share as shareText } from "../format";
import type { Colour } from "../theme";

export interface Column<T> {
  label: string;
  cell: (row: T) => ComponentChildren;
  /** Words, not figures: set to the left. */
  text?: boolean;
}

interface Props<T> {
  title: string;
  rows: T[];
  name: (row: T) => string;
  columns: Column<T>[];
  empty?: string;
}

export function Figures<T>({ title, rows, name, columns, empty }: Props<T>) {
  return (
    <section class="card" aria-label={title}>
      <header>
        <h3>{title}</h3>
      </header>
      {rows.length === 0 ? (
        <p class="note">{empty ?? "Nothing in this range."}</p>
      ) : (
        <div class="scroll">
          <table class="numbers">
            <thead>
              <tr>
                <th scope="col">Name</th>
                {columns.map(({ label, text }) => (
                  <th key={label} scope="col" class={text ? "text" : ""}>
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row, index) => (
                <tr key={`${index} ${name(row)}`}>
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

/** A share as a bar beside its number. */
export function Bar({ share, colour }: { share: number; colour: Colour }) {
  return (
    <span class="share">
      <span class={`rail ${colour}`} aria-hidden="true">
        <i style={{ width: `${Math.min(100, Math.max(0, share * 100))}%` }} />
      </span>
      {shareText(share)}
    </span>
  );
}
