// The cost of each endpoint: its requests, their durations, and their share of the GIL.

import { useAnswer } from "../answers";
import * as format from "../format";
import type { Endpoint, Holders } from "../model";
import { refreshSeconds } from "../range";
import { Trouble, Waiting } from "../trouble";
import { Bar, Figures } from "./figures";
import { Filter } from "./filter";
import { asked, type PageProps } from "./props";

export function EndpointsPage({ address }: PageProps) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<Holders>("holders", asked(address), every && Math.max(3, every));
  const wanted = (address.view.q ?? "").toLowerCase();
  if (!answer.data) return <Waiting answer={answer} />;
  const all = answer.data.endpoints;
  const rows = all.filter(({ name }) => name.toLowerCase().includes(wanted));
  const held = all.reduce((sum, endpoint) => sum + endpoint.gil_held, 0);
  const each = (total: (endpoint: Endpoint) => number) => (endpoint: Endpoint) =>
    endpoint.requests ? total(endpoint) / endpoint.requests : null;
  return (
    <>
      <Trouble answers={[answer]} />
      <div class="bar">
        <Filter value={address.view.q ?? ""} label="Endpoint contains" />
        <span class="note">
          {format.count(rows.length)} of {format.counted(all.length, "endpoint")}
        </span>
      </div>
      <Figures
        title="Endpoints"
        note="routes if the framework reports them, else prefixes of paths"
        rows={rows}
        id={(endpoint) => `${endpoint.application_group ?? ""}\n${endpoint.name}`}
        name={(endpoint) => (
          <>
            {endpoint.name}
            {endpoint.application_group ? <small> {endpoint.application_group}</small> : ""}
          </>
        )}
        columns={[
          {
            label: "Requests",
            cell: (row) => format.count(row.requests),
            by: (row) => row.requests,
          },
          { label: "Errors", cell: (row) => format.count(row.errors), by: (row) => row.errors },
          {
            label: "Response p50",
            cell: (row) => format.seconds(row.response?.p50),
            by: (row) => row.response?.p50,
          },
          {
            label: "p95",
            cell: (row) => format.seconds(row.response?.p95),
            by: (row) => row.response?.p95,
          },
          {
            label: "p99",
            cell: (row) => format.seconds(row.response?.p99),
            by: (row) => row.response?.p99,
          },
          {
            label: "Application mean",
            cell: (row) => format.seconds(each((endpoint) => endpoint.application)(row)),
            by: each((endpoint) => endpoint.application),
          },
          {
            label: "GIL wait p95",
            cell: (row) => format.seconds(row.gil_wait?.p95),
            by: (row) => row.gil_wait?.p95,
          },
          {
            label: "GIL held per request",
            cell: (row) => format.seconds(each((endpoint) => endpoint.gil_held)(row)),
            by: each((endpoint) => endpoint.gil_held),
          },
          {
            label: "share of GIL held",
            cell: (row) => <Bar share={held ? row.gil_held / held : 0} colour="teal" />,
            by: (row) => row.gil_held,
          },
          {
            label: "CPU each",
            cell: (row) => format.seconds(each((endpoint) => endpoint.cpu)(row)),
            by: each((endpoint) => endpoint.cpu),
          },
        ]}
      />
    </>
  );
}
