// Spans of time, selections and recordings side by side: a table that grows with each configuration
// tried, with ratios to its first row, and their GIL waits superimposed.

import { useEffect, useMemo, useState } from "preact/hooks";
import { go, selectionParameters, target } from "../address";
import { ask, question, useAnswer } from "../answers";
import { fileName } from "../charts/card";
import { DistributionChart, type Layer } from "../charts/distribution";
import { LineKey } from "../charts/key";
import { addRow, formatRow, parseRow, type Row } from "../comparison";
import * as format from "../format";
import type { Comparison, Distribution, Measured, Quantiles, Summary } from "../model";
import type { Colour } from "../theme";
import { Trouble } from "../trouble";
import { Sign } from "../verdict";
import type { PageProps } from "./props";
import { shapeOf, versionsOf } from "./tiles";

interface Figure {
  label: string;
  value: (summary: Summary) => number | null | undefined;
  said: (value: number | null | undefined) => string;
}

const of =
  (metric: "response" | "application" | "gil_wait" | "take_wait", name: keyof Quantiles) =>
  (summary: Summary) =>
    summary[metric]?.[name];

const FIGURES: readonly Figure[] = [
  { label: "Requests", value: (summary) => summary.rpm, said: format.perMinute },
  { label: "Response", value: of("response", "mean"), said: format.seconds },
  { label: "p95", value: of("response", "p95"), said: format.seconds },
  { label: "p99", value: of("response", "p99"), said: format.seconds },
  { label: "Application", value: of("application", "mean"), said: format.seconds },
  { label: "CPU/process", value: (summary) => summary.cpu_per_process, said: format.cores },
  { label: "GIL wait p95", value: of("gil_wait", "p95"), said: format.seconds },
  { label: "of a take p95", value: of("take_wait", "p95"), said: format.seconds },
  { label: "GIL held", value: (summary) => summary.gil?.held, said: format.share },
];

const HUES: readonly Colour[] = ["red", "teal", "blue", "amber", "violet", "grey"];

export function ComparePage({ address }: PageProps) {
  const rows = address.rows;
  const asking = rows.map((row): [string, string] => ["row", row]);
  return (
    <>
      <div class="bar">
        <button type="button" class="primary" onClick={() => addRow()}>
          Add what is selected now
        </button>
        {rows.length > 0 && <Export asking={asking} />}
        {rows.length > 0 && (
          <button type="button" onClick={() => go({ rows: [] })}>
            Remove all
          </button>
        )}
      </div>
      {rows.length === 0 ? <Empty /> : <Compared rows={rows} asking={asking} />}
    </>
  );
}

function Empty() {
  return (
    <section class="card">
      <h2>Compare configurations</h2>
      <p>
        Choose a range and a selection above, then "Add to comparison" (or press c) on any page.
        Change the configuration, let it run, and add again: each row is compared with the first.
        The address of the page contains the table; share it, or export the table as Markdown or
        CSV.
      </p>
    </section>
  );
}

function Export({ asking }: { asking: [string, string][] }) {
  const [said, say] = useState("");
  const markdown = async () => {
    const response = await fetch(question("compare.md", asking), { cache: "no-store" });
    if (!response.ok) throw new Error(`The recorder answered ${response.status}.`);
    return response.text();
  };
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(await markdown());
      say("Copied.");
    } catch (error) {
      say(error instanceof Error ? error.message : "It could not be copied.");
    }
  };
  return (
    <>
      <button type="button" onClick={copy}>
        Copy as Markdown
      </button>
      <a
        class="button"
        href={question("compare.md", asking)}
        download={fileName("comparison", "md")}
      >
        Markdown
      </a>
      <a
        class="button"
        href={question("compare.csv", asking)}
        download={fileName("comparison", "csv")}
      >
        CSV
      </a>
      <span class="note" role="status">
        {said}
      </span>
    </>
  );
}

function Compared({ rows, asking }: { rows: string[]; asking: [string, string][] }) {
  const answer = useAnswer<Comparison>("compare", asking, null);
  const answered = answer.stale ? null : answer.data;
  return (
    <>
      <Trouble answers={[answer]} />
      <section class="card" aria-labelledby="table">
        <header>
          <h3 id="table">
            Side by side <small>× is the ratio to the first row</small>
          </h3>
        </header>
        <div class="scroll">
          <table class="numbers compare">
            <thead>
              <tr>
                <th scope="col">Row</th>
                <th scope="col" class="text">
                  Configuration
                </th>
                {FIGURES.map(({ label }) => (
                  <th key={label} scope="col">
                    {label}
                  </th>
                ))}
                <th scope="col" class="text">
                  Verdict
                </th>
                <th scope="col">
                  <span class="sr">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((text, index) => (
                <ComparedRow
                  key={index}
                  rows={rows}
                  index={index}
                  row={parseRow(text)}
                  measured={answered?.rows[index] ?? null}
                  first={answered?.rows[0] ?? null}
                />
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <Waits rows={rows} />
    </>
  );
}

interface RowProps {
  rows: string[];
  index: number;
  row: Row | null;
  measured: Measured | null;
  first: Measured | null;
}

function ComparedRow({ rows, index, row, measured, first }: RowProps) {
  const replace = (next: string[]) => go({ rows: next });
  const moveUp = () => {
    const next = [...rows];
    const [here] = next.splice(index, 1);
    if (here !== undefined) next.splice(index - 1, 0, here);
    replace(next);
  };
  if (!row) {
    return (
      <tr>
        <th scope="row">Row {index + 1} of the address cannot be read</th>
        <td colSpan={FIGURES.length + 2} />
        <td>
          <Remove rows={rows} index={index} />
        </td>
      </tr>
    );
  }
  return (
    <tr>
      <th scope="row">
        <LineKey hue={HUES[index % HUES.length] ?? "grey"} index={index} />
        <Name
          name={row.name}
          onChange={(name) =>
            replace(rows.map((other, at) => (at === index ? formatRow({ ...row, name }) : other)))
          }
        />
        <small>
          <a
            href={target({
              page: "gil",
              range: { from: row.from, to: row.to },
              selection: row.selection,
            })}
          >
            {format.interval(row.from, row.to)}
          </a>{" "}
          {selectionText(row)}
        </small>
      </th>
      <td class="text">
        {measured && (
          <>
            {shapeOf(measured.config)} <small>{versionsOf(measured.config)}</small>
          </>
        )}
      </td>
      {FIGURES.map(({ label, value, said }) => {
        const here = measured ? value(measured.summary) : null;
        return (
          <td key={label}>
            {measured ? said(here) : "…"}
            {index > 0 && measured && first && (
              <small>{format.ratio(here, value(first.summary))}</small>
            )}
          </td>
        );
      })}
      <td class="text">
        {measured && (
          <>
            <Sign severity={measured.verdict.severity} /> {measured.verdict.title}
          </>
        )}
      </td>
      <td>
        {index > 0 && (
          <button type="button" class="quiet" onClick={moveUp} title="One up">
            <span aria-hidden="true">↑</span>
            <span class="sr">Move {row.name} up</span>
          </button>
        )}
        <Remove rows={rows} index={index} />
      </td>
    </tr>
  );
}

function Remove({ rows, index }: { rows: string[]; index: number }) {
  return (
    <button
      type="button"
      class="quiet"
      title="Remove"
      onClick={() => go({ rows: rows.filter((_, at) => at !== index) })}
    >
      <span aria-hidden="true">✕</span>
      <span class="sr">Remove row {index + 1}</span>
    </button>
  );
}

/** A typed name applies when the field loses focus: each change is a history entry. */
function Name({ name, onChange }: { name: string; onChange: (name: string) => void }) {
  return (
    <input
      class="name"
      aria-label="Name of the row"
      value={name}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

function selectionText({ selection }: Row): string {
  return [
    selection.recording && `recording ${selection.recording}`,
    ...selection.hosts,
    ...selection.groups.map(format.groupName),
    ...selection.pids,
  ]
    .filter(Boolean)
    .join(", ");
}

/** The waits of each row, requested one after the other and superimposed. */
function Waits({ rows }: { rows: string[] }) {
  const [answers, setAnswers] = useState<(Distribution | null)[]>([]);
  const asked = rows.join("\n");
  useEffect(() => {
    const controller = new AbortController();
    setAnswers([]);
    const run = async () => {
      for (const [index, text] of rows.entries()) {
        const row = parseRow(text);
        if (!row) continue;
        const address = question("distribution", [
          ["from", row.from.toFixed(3)],
          ["to", row.to.toFixed(3)],
          ...selectionParameters(row.selection),
          ["metric", "take_wait"],
        ]);
        const answer = await ask<Distribution>(address, controller.signal).catch(() => null);
        if (controller.signal.aborted) return;
        setAnswers((before) => {
          const next = [...before];
          next[index] = answer;
          return next;
        });
      }
    };
    void run();
    return () => controller.abort();
  }, [asked]);

  const layers = useMemo(
    (): Layer[] =>
      rows.slice(0, HUES.length).map((text, index) => ({
        label: `${index + 1}. ${parseRow(text)?.name ?? ""}`,
        colour: HUES[index] ?? "grey",
        histogram: answers[index]?.histogram ?? null,
      })),
    [answers, asked],
  );
  const intervals = useMemo(() => {
    const all = answers.flatMap((answer) => answer?.switch_intervals ?? []);
    return [...new Set(all)].sort((a, b) => b - a).slice(0, 1);
  }, [answers]);
  return (
    <DistributionChart
      title="Wait of a take of the GIL"
      noun="take"
      layers={layers}
      intervals={intervals}
      weigh="number"
      axis="log"
    />
  );
}
