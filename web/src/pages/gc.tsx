// The garbage collector: how much of the time it takes, how long it stops a process, and each pass.

import { useMemo } from "preact/hooks";
import { useAnswer } from "../answers";
import { DistributionChart, type Layer } from "../charts/distribution";
import { LineChart } from "../charts/lines";
import { line } from "../charts/percentiles";
import type { GcEvent } from "../events";
import * as format from "../format";
import type { Distribution, GcAnswer, Series } from "../model";
import { describe, refreshSeconds } from "../range";
import { useSeries } from "../series";
import { Trouble } from "../trouble";
import { Figures } from "./figures";
import { overTime } from "./over_time";
import { asked, type PageProps } from "./props";

const LIMIT = 200;
const NO_INTERVALS: number[] = [];

export function GcPage({ address }: PageProps) {
  const every = refreshSeconds(address.range);
  const slowly = every && Math.max(3, every);
  const series = useSeries(address);
  const pauses = useAnswer<Distribution>(
    "distribution",
    [...asked(address), ["metric", "gc_pause"]],
    slowly,
  );
  const events = useAnswer<GcAnswer>("gc", [...asked(address), ["limit", String(LIMIT)]], slowly);
  const layers = useMemo(
    (): Layer[] => [
      {
        label: describe(address.range),
        colour: "violet",
        histogram: pauses.data?.histogram ?? null,
      },
    ],
    [pauses.data, JSON.stringify(address.range)],
  );
  return (
    <>
      <Trouble answers={[series, pauses, events]} />
      {series.data && <Charts series={series.data} stale={series.stale} />}
      <DistributionChart
        title="Pauses"
        noun="pause"
        layers={layers}
        intervals={NO_INTERVALS}
        weigh="number"
        axis="log"
        stale={pauses.stale}
        height={220}
      />
      <Collections
        events={(events.data?.events ?? []).filter(({ event }) => event !== "gc_snapshot")}
      />
    </>
  );
}

function Charts({ series, stale }: { series: Series; stale: boolean }) {
  const { points } = series;
  const drawn = useMemo(() => {
    const of = line.bind(null, points);
    return {
      times: points.map(({ time }) => time),
      share: [of("of the time", "amber", ({ gc }) => gc?.share, { fill: "zero", width: 2 })],
      rate: [of("collections", "violet", ({ gc }) => gc?.pauses, { fill: "zero", width: 2 })],
      pause: [
        of("p50", "blue", ({ gc }) => gc?.pause?.p50, { width: 2 }),
        of("p95", "blue", ({ gc }) => gc?.pause?.p95, { opacity: 0.7, fill: "before" }),
        of("p99", "blue", ({ gc }) => gc?.pause?.p99, { opacity: 0.45, fill: "before" }),
      ],
    };
  }, [points]);
  const shared = overTime(series, drawn.times, stale);
  return (
    <section class="grid" aria-label="Over time">
      <LineChart
        {...shared}
        title="Time in the collector"
        unit={format.share}
        lines={drawn.share}
      />
      <LineChart {...shared} title="Collections" unit={format.perSecond} lines={drawn.rate} />
      <LineChart {...shared} title="Pause" unit={format.seconds} lines={drawn.pause} />
    </section>
  );
}

function Collections({ events }: { events: GcEvent[] }) {
  return (
    <Figures
      title="Collections"
      note="the latest first"
      heading="Time"
      rows={events}
      id={(event) => `${event.host} ${event.pid} ${event.time} ${event.interpreter_name ?? ""}`}
      name={(event) => format.moment(event.time)}
      empty="No garbage collection was reported in this range."
      columns={[
        { label: "Process", cell: (event) => event.pid, text: true },
        { label: "Interpreter", cell: (event) => event.interpreter_name || "(main)", text: true },
        {
          label: "Pause",
          cell: (event) => format.seconds(event.gc_event_duration),
          by: (event) => event.gc_event_duration,
        },
        {
          label: "Generation",
          cell: (event) => format.count(event.gc_event_generation),
          by: (event) => event.gc_event_generation,
        },
        {
          label: "Collected",
          cell: (event) => format.count(event.gc_event_collected),
          by: (event) => event.gc_event_collected,
        },
        {
          label: "Uncollectable",
          cell: (event) => format.count(event.gc_event_uncollectable),
          by: (event) => event.gc_event_uncollectable,
        },
      ]}
    />
  );
}
