// The holders of the GIL: by GIL, thread, endpoint and interpreter, and the longest holds with the
// holder's Python stack.

import type { Address } from "../address";
import { useAnswer } from "../answers";
import { parseRow } from "../comparison";
import * as format from "../format";
import { place } from "../frames";
import { beside } from "../lines";
import type { Holders as Answered } from "../model";
import { refreshSeconds } from "../range";
import { Trouble, Waiting } from "../trouble";
import { Bar, Figures } from "./figures";
import { asked, askedOf } from "./props";
import { Waits } from "./waits";

export function Holders({ address }: { address: Address }) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<Answered>("holders", asked(address), every && Math.max(3, every));
  const before = parseRow(address.view.before ?? "");
  const earlier = useAnswer<Answered>("holders", before ? askedOf(before) : [["from", "-1"]], null);
  if (!answer.data) return <Waiting answer={answer} />;
  const { gils, threads, endpoints, interpreters, holds } = answer.data;
  const held = threads.reduce((sum, thread) => sum + thread.held, 0);
  const byEndpoint = endpoints.reduce((sum, endpoint) => sum + endpoint.gil_held, 0);
  return (
    <>
      <Trouble answers={before ? [answer, earlier] : [answer]} />
      <Lines now={answer.data} before={before && !earlier.stale ? earlier.data : null} />
      <Waits address={address} />
      <Figures
        title="GILs"
        rows={gils}
        name={(gil) => gil.name}
        id={(gil) => `${gil.host} ${gil.pid} ${gil.name}`}
        columns={[
          { label: "Held", cell: (gil) => <Bar share={part(gil.held, gil)} colour="teal" /> },
          {
            label: "Handoff",
            cell: (gil) => <Bar share={part(gil.handoff, gil)} colour="amber" />,
          },
          { label: "Idle", cell: (gil) => format.share(part(gil.idle, gil)) },
          { label: "Takes", cell: (gil) => format.count(gil.takes) },
          { label: "contended", cell: (gil) => format.count(gil.contended_takes) },
          { label: "Forced drops", cell: (gil) => format.count(gil.forced_drops) },
          { label: "Preemptions", cell: (gil) => format.count(gil.preemptions) },
        ]}
      />
      <Figures
        title="Who holds the GIL: threads"
        rows={threads}
        name={(thread) => thread.name}
        id={(thread) =>
          `${thread.host} ${thread.pid} ${thread.native_id} ${thread.gil} ${thread.name}`
        }
        columns={[
          { label: "GIL", cell: (thread) => thread.gil, text: true },
          { label: "Held", cell: (thread) => format.seconds(thread.held) },
          {
            label: "of all",
            cell: (thread) => <Bar share={held ? thread.held / held : 0} colour="teal" />,
          },
          { label: "Waited", cell: (thread) => format.seconds(thread.waited) },
          { label: "Takes", cell: (thread) => format.count(thread.takes) },
          { label: "Forced drops", cell: (thread) => format.count(thread.forced_drops) },
        ]}
      />
      <Figures
        title="Who holds the GIL: endpoints"
        rows={endpoints}
        name={(endpoint) => endpoint.name}
        id={(endpoint) => `${endpoint.application_group ?? ""}\n${endpoint.name}`}
        columns={[
          { label: "Requests", cell: (endpoint) => format.count(endpoint.requests) },
          { label: "Held", cell: (endpoint) => format.seconds(endpoint.gil_held) },
          {
            label: "of all",
            cell: (endpoint) => (
              <Bar share={byEndpoint ? endpoint.gil_held / byEndpoint : 0} colour="teal" />
            ),
          },
          {
            label: "per request",
            cell: (endpoint) =>
              format.seconds(endpoint.requests ? endpoint.gil_held / endpoint.requests : null),
          },
          { label: "GIL wait p95", cell: (endpoint) => format.seconds(endpoint.gil_wait?.p95) },
        ]}
      />
      {interpreters.length > 1 && (
        <Figures
          title="Who holds the GIL: interpreters"
          rows={interpreters}
          name={(row) => row.name || "(main)"}
          id={(row) => row.name}
          columns={[
            { label: "Own GIL", cell: (row) => (row.own_gil ? "yes" : "no"), text: true },
            { label: "Requests", cell: (row) => format.count(row.requests) },
            { label: "Held", cell: (row) => format.seconds(row.gil_held) },
            { label: "Waited", cell: (row) => format.seconds(row.gil_wait) },
            { label: "Application", cell: (row) => format.seconds(row.application) },
          ]}
        />
      )}
      <LongestHolds holds={holds} />
    </>
  );
}

function Lines({ now, before }: { now: Answered; before: Answered | null }) {
  const rows = beside(now, before);
  const all = now.lines.reduce((sum, line) => sum + line.waited, 0);
  return (
    <Figures
      title="Who holds the GIL while others wait: lines"
      note="the innermost Python call of the holder, and how long others waited meanwhile"
      empty="No thread waited for a GIL in this range, or the processes do not report lines."
      rows={rows}
      name={(line) => (
        <>
          {line.function} {line.file && <small>{`(${place(line)})`}</small>}
        </>
      )}
      id={(line) => line.key}
      columns={[
        { label: "Endpoint", cell: (line) => line.endpoint, text: true },
        {
          label: "Others waited",
          cell: (line) => format.seconds(line.waited),
          by: (line) => line.waited,
        },
        {
          label: "of all",
          cell: (line) => <Bar share={all ? line.waited / all : 0} colour="amber" />,
        },
        {
          label: "per second",
          cell: (line) => format.seconds(line.rate),
          by: (line) => line.rate,
        },
        ...(before
          ? [
              {
                label: "before, per second",
                cell: (line: (typeof rows)[number]) => format.seconds(line.before),
                by: (line: (typeof rows)[number]) => line.before,
              },
            ]
          : []),
      ]}
    />
  );
}

function part(time: number, gil: { held: number; handoff: number; idle: number }): number {
  const whole = gil.held + gil.handoff + gil.idle;
  return whole ? time / whole : 0;
}

function LongestHolds({ holds }: { holds: Answered["holds"] }) {
  return (
    <section class="card" aria-labelledby="holds">
      <header>
        <h3 id="holds">Longest holds</h3>
      </header>
      {holds.length === 0 && (
        <p class="note">
          In this range no thread waited long for a hold of 50 ms or more, from which on holds are
          recorded.
        </p>
      )}
      {holds.map((hold) => (
        <details key={`${hold.time} ${hold.native_id} ${hold.pid}`} class="hold">
          <summary>
            <strong>{format.seconds(hold.duration)}</strong> {hold.thread}
            {hold.present ? " · not ended" : ""}
            {hold.endpoint ? ` · ${hold.endpoint}` : ""} · {format.moment(hold.time)}
            {hold.waited ? ` · longest waiter ${format.seconds(hold.waited)}` : ""}
            {hold.cpu === undefined ? "" : ` · CPU ${format.seconds(hold.cpu)}`}
          </summary>
          <pre>{hold.stack || "No stack was taken."}</pre>
        </details>
      ))}
    </section>
  );
}
