// The figures of a selection, each with its unit and the two that put it in its place.

import * as format from "../format";
import {
  type Config,
  type MaybeQuantiles,
  type Measured,
  type Quantiles,
  type Summary,
  serves,
} from "../model";

function quantile(of: MaybeQuantiles, name: keyof Quantiles): string {
  return format.seconds(of?.[name] ?? null);
}

/** "2 × 5 threads · 5 ms · deadline": how the selection is run, as the seeds' tables name it. */
export function shapeOf(config: Config): string {
  const free = config.gil_mode === "disabled";
  const processes = format.varying(config.processes, String);
  return listed([
    config.threads === null
      ? `${processes} ${processes === "1" ? "process" : "processes"}`
      : `${processes} × ${format.varying(config.threads, String)} threads`,
    free ? "free-threaded" : format.varying(config.switch_interval, format.seconds),
    free ? "" : format.varying(config.policy, String),
  ]);
}

/** "Python 3.13.0 · headway 0.1.0" */
export function versionsOf(config: Config): string {
  return listed([
    config.python ? `Python ${format.varying(config.python, String)}` : "",
    format.varying(config.server, String),
  ]);
}

export function configured(config: Config): string {
  return listed([shapeOf(config), versionsOf(config)]);
}

function listed(parts: string[]): string {
  return parts.filter((part) => part && part !== format.NOTHING).join(" · ");
}

interface Tile {
  name: string;
  value: string;
  more: string;
  bad?: boolean;
  /** It says nothing about a program that serves no requests. */
  ofRequests?: boolean;
}

function gilTile({ summary, config }: Pick<Measured, "summary" | "config">): Tile {
  if (config.gil_mode === "disabled") return { name: "GIL", value: "none", more: "free-threaded" };
  const { gil, exact, gil_wait, take_wait } = summary;
  if (!serves({ summary, config })) {
    return {
      name: "GIL wait p95",
      value: quantile(take_wait, "p95"),
      more: `p50 ${quantile(take_wait, "p50")} · longest ${quantile(take_wait, "max")}`,
    };
  }
  return {
    name: exact ? "GIL wait p95" : "GIL wait p95, at least",
    value: quantile(gil_wait, "p95"),
    more: gil
      ? `of a take ${quantile(take_wait, "p95")} · held ${format.share(gil.held)}`
      : `p50 ${quantile(gil_wait, "p50")} · p99 ${quantile(gil_wait, "p99")}`,
  };
}

/** The tiles of a program without requests: its GIL, as far as it has one. */
function ran({ hold, gil }: Summary): Tile[] {
  if (!gil) return [];
  return [
    {
      name: "GIL held",
      value: format.share(gil.held),
      more: `handoff ${format.share(gil.handoff)} · idle ${format.share(gil.idle)}`,
    },
    {
      name: "Hold p95",
      value: quantile(hold, "p95"),
      more: `p50 ${quantile(hold, "p50")} · longest ${quantile(hold, "max")}`,
    },
  ];
}

/** The tile of processes with event loops. */
function ofLoops({ loops, loop_iteration }: Summary): Tile[] {
  if (!loops) return [];
  return [
    {
      name: "Event loop p99",
      value: quantile(loop_iteration, "p99"),
      more: `longest ${quantile(loop_iteration, "max")} · late ${format.perSecond(loops.late)}`,
    },
  ];
}

export function Tiles(measured: Measured) {
  const { summary, config } = measured;
  const withRequests = serves(measured);
  const errors = summary.errors_5xx + summary.errors_4xx + summary.failed;
  const all: Tile[] = [
    {
      name: "Throughput",
      value: format.perSecond(summary.rps),
      more: `${format.perMinute(summary.rpm)} · ${format.counted(summary.requests, "request")}`,
      ofRequests: true,
    },
    {
      name: "Response p95",
      value: quantile(summary.response, "p95"),
      more: `p50 ${quantile(summary.response, "p50")} · p99 ${quantile(summary.response, "p99")}`,
      ofRequests: true,
    },
    {
      name: "Application p95",
      value: quantile(summary.application, "p95"),
      more: `p50 ${quantile(summary.application, "p50")} · mean ${quantile(summary.application, "mean")}`,
      ofRequests: true,
    },
    ...(withRequests ? [] : ran(summary)),
    gilTile(measured),
    ...ofLoops(summary),
    {
      name: "CPU",
      value: format.cores(summary.cpu),
      more: `${format.cores(summary.cpu_per_process)} per process`,
    },
    {
      name: "Busy threads",
      value: format.share(summary.busy),
      more: `of ${format.count(summary.threads)} · ${format.counted(Math.round(summary.processes), "process")}`,
      ofRequests: true,
    },
    {
      name: "Memory",
      value: format.bytes(summary.rss),
      more: `${format.bytes(summary.rss_per_process)} per process`,
    },
    {
      name: "Errors",
      value: format.count(errors),
      more: `5xx ${format.count(summary.errors_5xx)} · 4xx ${format.count(summary.errors_4xx)} · failed ${format.count(summary.failed)}`,
      bad: summary.errors_5xx + summary.failed > 0,
      ofRequests: true,
    },
  ];
  const tiles = all.filter(({ ofRequests }) => withRequests || !ofRequests);
  return (
    <section aria-label="Figures">
      <p class="configured">{configured(config)}</p>
      <dl class="tiles">
        {tiles.map(({ name, value, more, bad }) => (
          <div key={name} class={`card tile ${bad ? "bad" : ""}`}>
            <dt>{name}</dt>
            <dd>
              <strong>{value}</strong>
              <small>{more}</small>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
