// The frame of a chart: its title, its summary, a table with the same numbers for readers who
// cannot or would not read the picture, and the picture as a PNG.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { type LegendEntry, picture, save } from "./png";

export interface Table {
  columns: string[];
  rows: string[][];
}

interface Props {
  title: string;
  note?: string | undefined;
  /** The legend of the picture besides the lines, for its PNG. */
  legend?: LegendEntry[];
  canvas: () => HTMLCanvasElement | null;
  table: () => Table;
  wide?: boolean | undefined;
  tools?: ComponentChildren;
  children: ComponentChildren;
}

export function fileName(title: string, extension: string): string {
  const day = new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-");
  const words = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
  return `headway-${words}-${day}.${extension}`;
}

export function Card({ title, note, legend, canvas, table, wide, tools, children }: Props) {
  const [shown, show] = useState(false);
  const id = useId();
  const exportPicture = async () => {
    const drawn = canvas();
    if (drawn) save(await picture(title, note ?? "", legend ?? [], drawn), fileName(title, "png"));
  };
  return (
    <section class={`card chart ${wide ? "wide" : ""}`} aria-labelledby={id}>
      <header>
        <h3 id={id}>{title}</h3>
        <div class="tools">
          {tools}
          <button
            type="button"
            class="quiet"
            aria-pressed={shown}
            onClick={() => show(!shown)}
            title={`${title} as a table`}
          >
            Table
          </button>
          <button
            type="button"
            class="quiet"
            onClick={exportPicture}
            title={`Save ${title} as PNG`}
          >
            PNG
          </button>
        </div>
      </header>
      {note && <p class="note">{note}</p>}
      {children}
      {shown && <DataTable title={title} {...table()} />}
    </section>
  );
}

export function DataTable({ title, columns, rows }: Table & { title: string }) {
  return (
    <section class="scroll tall" aria-label={`${title}, table`}>
      <table class="numbers">
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row[0]}>
              {row.map((cell, index) =>
                index === 0 ? (
                  <th key={columns[index]} scope="row">
                    {cell}
                  </th>
                ) : (
                  <td key={columns[index]}>{cell}</td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
