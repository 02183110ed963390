// Groups and their processes, as they are now or were in the range; a name picks what is shown.

import { EVERYTHING, target } from "../address";
import { ask, question, useAsking } from "../answers";
import { formatRow, questionsOf } from "../comparison";
import * as format from "../format";
import type { Measured, Now, Process } from "../model";
import { isLive } from "../range";
import { Sign } from "../verdict";
import type { PageProps } from "./props";
import { shapeOf } from "./tiles";

const COLUMNS = [
  "Requests",
  "Response p50",
  "p95",
  "Application p95",
  "GIL wait p95",
  "GIL held",
  "CPU",
  "Busy",
  "Memory",
];

function figures({ summary, config }: Measured): string[] {
  return [
    format.perSecond(summary.rps),
    format.seconds(summary.response?.p50),
    format.seconds(summary.response?.p95),
    format.seconds(summary.application?.p95),
    config.gil_mode === "disabled" ? "no GIL" : format.seconds(summary.gil_wait?.p95),
    format.share(summary.gil?.held),
    format.cores(summary.cpu),
    format.share(summary.busy),
    format.bytes(summary.rss),
  ];
}

interface Row {
  key: string;
  name: string;
  title: string;
  href: string;
  measured: Measured;
  process?: Process;
}

function groupHref(host: string, group: string): string {
  return target({ selection: { ...EVERYTHING, hosts: [host], groups: [group] } });
}

function rowsNow({ groups, processes }: Now): Row[] {
  return groups.flatMap((group) => [
    {
      key: `${group.host}\n${group.group}`,
      name: format.groupName(group.group),
      title: `${group.host} · ${shapeOf(group.config)}`,
      href: groupHref(group.host, group.group),
      measured: group,
    },
    ...processes
      .filter((process) => process.host === group.host && process.group === group.group)
      .map((process) => ({
        key: `${process.host}\n${process.pid}\n${process.started}`,
        name: String(process.pid),
        title: `up ${format.span(process.last_seen - process.started)}${process.alive ? "" : ", gone"}`,
        href: target({
          selection: { ...EVERYTHING, hosts: [process.host], pids: [String(process.pid)] },
        }),
        measured: process,
        process,
      })),
  ]);
}

export function ProcessTable({ address, now }: PageProps) {
  if (!now) return null;
  return isLive(address.range) ? (
    <Table title="Groups and processes" note="the last 10 s" rows={rowsNow(now)} />
  ) : (
    <GroupsThen address={address} now={now} />
  );
}

interface Compared {
  rows: (Measured & { name: string })[];
}

/** Each group in a fixed range: a comparison of the groups with each other. */
function GroupsThen({ address, now }: PageProps) {
  const { range } = address;
  const groups = now?.groups ?? [];
  const rows = isLive(range)
    ? []
    : groups.map(({ host, group }) =>
        formatRow({
          name: format.groupName(group),
          ...range,
          selection: {
            ...EVERYTHING,
            hosts: [host],
            groups: [group],
            recording: address.selection.recording,
          },
        }),
      );
  const answer = useAsking<Compared>(rows.join("\n"), null, async (signal) => {
    const answers: Compared[] = [];
    for (const part of questionsOf(rows)) {
      answers.push(await ask<Compared>(question("compare", part), signal));
    }
    return { rows: answers.flatMap((each) => each.rows) };
  });
  if (!answer.data || answer.stale || !groups.length) return null;
  return (
    <Table
      title="Groups"
      note="in this range"
      rows={answer.data.rows.flatMap((measured, index) => {
        const group = groups[index];
        return group
          ? [
              {
                key: `${group.host}\n${group.group}`,
                name: measured.name,
                title: `${group.host} · ${shapeOf(measured.config)}`,
                href: groupHref(group.host, group.group),
                measured,
              },
            ]
          : [];
      })}
    />
  );
}

function Table({ title, note, rows }: { title: string; note: string; rows: Row[] }) {
  return (
    <section class="card" aria-labelledby="processes">
      <header>
        <h3 id="processes">
          {title} <small>{note}</small>
        </h3>
      </header>
      {rows.length === 0 && <p class="note">No process reports now.</p>}
      <div class="scroll" hidden={rows.length === 0}>
        <table class="numbers processes">
          <thead>
            <tr>
              <th scope="col">Name</th>
              {COLUMNS.map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
              <th scope="col" class="text">
                Verdict
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.key} class={row.process ? (row.process.alive ? "" : "gone") : "group"}>
                <th scope="row">
                  <a href={row.href}>{row.name}</a> <small>{row.title}</small>
                </th>
                {figures(row.measured).map((cell, index) => (
                  <td key={COLUMNS[index]}>{cell}</td>
                ))}
                <td class="text">
                  <Sign severity={row.measured.verdict.severity} /> {row.measured.verdict.title}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
