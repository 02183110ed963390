// How it goes: verdicts first, then the figures, then how they went over time, then each process.

import { useMemo } from "preact/hooks";
import { selectionParameters } from "../address";
import { question, useAnswer } from "../answers";
import { fileName } from "../charts/card";
import { LineChart } from "../charts/lines";
import { happens, line, percentileLines } from "../charts/percentiles";
import * as format from "../format";
import { type Measured, type Series, serves, type Varying } from "../model";
import { describe, isLive, refreshSeconds } from "../range";
import { useSeries } from "../series";
import { Trouble } from "../trouble";
import { VerdictCard } from "../verdict";
import { Holders } from "./holders";
import { overTime } from "./over_time";
import { ProcessTable } from "./process_table";
import { asked, type PageProps } from "./props";
import { Tiles } from "./tiles";

export function OverviewPage({ address, now }: PageProps) {
  const every = refreshSeconds(address.range);
  const measured = useAnswer<Measured>("summary", asked(address), every && Math.max(2, every));
  const series = useSeries(address);
  if (now && measured.data && !now.processes.length && !measured.data.summary.period) {
    return <Nobody />;
  }
  return (
    <>
      <Trouble answers={[measured, series]} />
      <Verdicts address={address} measured={measured.data} now={now} />
      {measured.data && <Tiles {...measured.data} />}
      {series.data && <Charts series={series.data} measured={measured.data} stale={series.stale} />}
      {measured.data && !serves(measured.data) && <Holders address={address} />}
      <p>
        <a
          class="button"
          href={question("series.csv", asked(address))}
          download={fileName("series", "csv")}
        >
          These values as CSV
        </a>
      </p>
      <ProcessTable address={address} now={now} />
    </>
  );
}

/** Before anybody has reported, the page says how to begin. */
function Nobody() {
  return (
    <section class="card">
      <h2>No process has reported in this range</h2>
      <p>Start a process that reports to the socket of this recorder:</p>
      <pre>
        headway serve app:application --telemetry unix:PATH{"\n"}
        headway run --telemetry unix:PATH program.py{"\n"}
        WSGITelemetryService unix:PATH{"      "}# Apache with mod_wsgi 6
      </pre>
    </section>
  );
}

/** The verdict of the selection, and of each group now where it says something else. */
function Verdicts({ address, measured, now }: PageProps & { measured: Measured | null }) {
  if (!measured) return <p class="note">Asking the recorder …</p>;
  const selected = selectionParameters(address.selection).length > 0;
  const groups =
    isLive(address.range) && !selected && (now?.groups.length ?? 0) > 1
      ? (now?.groups ?? []).filter(
          ({ verdict }) =>
            verdict.name !== measured.verdict.name &&
            (verdict.severity === "warning" || verdict.severity === "critical"),
        )
      : [];
  return (
    <section class="verdicts" aria-label="Verdicts">
      <VerdictCard
        verdict={measured.verdict}
        about={`${selected ? "Selection" : "All processes"}, ${describe(address.range)}`}
      />
      {groups.map((group) => (
        <VerdictCard
          key={`${group.host} ${group.group}`}
          verdict={group.verdict}
          about={`${format.groupName(group.group)} on ${group.host}, now`}
        />
      ))}
    </section>
  );
}

function one(value: Varying<number> | undefined): number | undefined {
  return typeof value === "number" ? value : undefined;
}

interface ChartsProps {
  series: Series;
  measured: Measured | null;
  stale: boolean;
}

function Charts({ series, measured, stale }: ChartsProps) {
  const { points } = series;
  const drawn = useMemo(() => {
    const of = line.bind(null, points);
    return {
      times: points.map(({ time }) => time),
      throughput: [
        of("requests", "teal", (summary) => summary.rps, { fill: "zero", width: 2 }),
        ...[
          of("5xx", "red", ({ errors_5xx, period }) => (period ? errors_5xx / period : 0)),
          of("4xx", "amber", ({ errors_4xx, period }) => (period ? errors_4xx / period : 0)),
        ].filter(happens),
      ],
      response: percentileLines(points, "response", "blue"),
      application: percentileLines(points, "application", "teal"),
      wait: percentileLines(points, "gil_wait", "amber"),
      take: percentileLines(points, "take_wait", "violet"),
      cpu: [
        of("per process", "teal", (summary) => summary.cpu_per_process, { width: 2 }),
        of("all", "blue", (summary) => summary.cpu, { fill: "zero" }),
        of("system", "grey", (summary) => summary.cpu_system),
      ],
      memory: [
        of("all", "violet", (summary) => summary.rss, { fill: "zero", width: 2 }),
        of("per process", "grey", (summary) => summary.rss_per_process),
      ],
      capacity: [
        of("busy", "teal", (summary) => summary.busy, { fill: "zero", width: 2 }),
        ...[of("CPU throttled", "red", (summary) => summary.throttled)].filter(happens),
      ],
      traffic: [
        of("sent", "blue", (summary) => summary.output_bytes, { fill: "zero" }),
        of("received", "teal", (summary) => summary.input_bytes),
      ],
    };
  }, [points]);

  const shared = overTime(series, drawn.times, stale);
  const config = measured?.config;
  const allowed = one(config?.cpu_limit);
  const withGil = config?.gil_mode !== "disabled";
  const withRequests = !measured || serves(measured);
  const withTakes = points.some(({ summary }) => summary?.take_wait);
  return (
    <section class="grid" aria-label="Over time">
      {withRequests && (
        <>
          <LineChart
            {...shared}
            title="Throughput"
            unit={format.perSecond}
            lines={drawn.throughput}
          />
          <LineChart
            {...shared}
            title="Response time"
            unit={format.seconds}
            lines={drawn.response}
          />
          <LineChart
            {...shared}
            title="Application time"
            unit={format.seconds}
            lines={drawn.application}
          />
        </>
      )}
      {withRequests && withGil && (
        <LineChart
          {...shared}
          title="GIL wait of a request"
          note={
            measured?.summary.exact === false
              ? "A lower bound: mod_wsgi sees its own waits only"
              : undefined
          }
          unit={format.seconds}
          lines={drawn.wait}
        />
      )}
      <LineChart
        {...shared}
        title="CPU"
        unit={format.cores}
        lines={drawn.cpu}
        limit={
          allowed ? { value: allowed, label: `cgroup limit ${format.cores(allowed)}` } : undefined
        }
      />
      {withTakes && (
        <LineChart
          {...shared}
          title="Wait of a take of the GIL"
          unit={format.seconds}
          lines={drawn.take}
        />
      )}
      {withRequests && (
        <LineChart
          {...shared}
          title="Capacity"
          unit={format.share}
          top={1}
          lines={drawn.capacity}
        />
      )}
      <LineChart {...shared} title="Memory" unit={format.bytes} binary lines={drawn.memory} />
      {withRequests && (
        <LineChart
          {...shared}
          title="Bytes"
          unit={format.bytesPerSecond}
          binary
          lines={drawn.traffic}
        />
      )}
    </section>
  );
}
