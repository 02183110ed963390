// The calls that make threads wait, as a flame graph of the range: of all endpoints, or of one. The
// graph of an earlier range lies below it.

import { type Address, look } from "../address";
import { type Answer, useAnswer } from "../answers";
import { FlameGraph } from "../charts/flame";
import { parseRow, type Row } from "../comparison";
import * as format from "../format";
import type { CallRow, Flame } from "../model";
import { refreshSeconds } from "../range";
import { Trouble, Waiting } from "../trouble";
import { Filter } from "./filter";
import { asked, askedOf } from "./props";

const TITLE = "Who holds the GIL while others wait: calls";

export function Waits({ address }: { address: Address }) {
  const every = refreshSeconds(address.range);
  const endpoint = address.view.endpoint ?? "";
  const wanted = address.view.q ?? "";
  const before = parseRow(address.view.before ?? "");
  const answer = useAnswer<Flame>(
    "flame_graph",
    ofEndpoint(asked(address), endpoint),
    every && Math.max(5, every),
  );
  if (!answer.data) return <Waiting answer={answer} />;
  const names = answer.data.endpoints.map(({ name }) => name);
  return (
    <section class="card" aria-label={TITLE}>
      <header>
        <h3>
          {TITLE}{" "}
          <small>a call is as wide as the time that other threads waited while it ran</small>
        </h3>
      </header>
      <Trouble answers={[answer]} />
      <div class="bar">
        <label class="inline">
          Endpoint{" "}
          <select
            value={endpoint}
            onChange={(event) => look("endpoint", event.currentTarget.value)}
          >
            <option value="">all</option>
            {(names.includes(endpoint) || !endpoint ? names : [endpoint, ...names]).map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Filter value={wanted} label="Search" />
      </div>
      <Graph label={before ? "After" : ""} answer={answer} data={answer.data} wanted={wanted} />
      {before && (
        <Earlier row={before} endpoint={endpoint} wanted={wanted} alike={answer.data.calls} />
      )}
    </section>
  );
}

interface EarlierProps {
  row: Row;
  endpoint: string;
  wanted: string;
  /** The calls of the present range. */
  alike: CallRow[];
}

function Earlier({ row, endpoint, wanted, alike }: EarlierProps) {
  const answer = useAnswer<Flame>("flame_graph", ofEndpoint(askedOf(row), endpoint), null);
  if (!answer.data) return <Waiting answer={answer} />;
  return (
    <>
      <Trouble answers={[answer]} />
      <Graph
        label={`Before: ${row.name}`}
        answer={answer}
        data={answer.data}
        wanted={wanted}
        alike={alike}
      />
    </>
  );
}

interface GraphProps {
  /** "" for the only graph. */
  label: string;
  answer: Answer<Flame>;
  data: Flame;
  wanted: string;
  alike?: CallRow[] | undefined;
}

function Graph({ label, answer, data, wanted, alike }: GraphProps) {
  const { calls, has_stacks, seconds } = data;
  const waited = calls[0]?.waited ?? 0;
  const rate = seconds > 0 ? `, ${format.seconds(waited / seconds)} per second` : "";
  return (
    <>
      {label && <h4>{label}</h4>}
      {waited === 0 ? (
        <p class="note">
          No thread waited for a GIL in this range, or the processes do not report lines.
        </p>
      ) : (
        <>
          <p class="note">
            {format.seconds(waited)} waited by all threads{rate}
            {has_stacks ? "" : ". The processes report no callers, so there are only lines."}
          </p>
          <FlameGraph
            label={label ? `Flame graph: ${label}` : "Flame graph"}
            calls={calls}
            alike={alike}
            wanted={wanted}
            stale={answer.stale}
          />
        </>
      )}
    </>
  );
}

function ofEndpoint(parameters: [string, string][], endpoint: string): [string, string][] {
  return endpoint ? [...parameters, ["endpoint", endpoint]] : parameters;
}
