// The GIL: how long threads wait for it and hold it, how that changed since an earlier range, how a
// GIL's time divides, and which threads hold it.

import { useMemo } from "preact/hooks";
import { go, look } from "../address";
import { useAnswer } from "../answers";
import { DistributionChart, type Layer } from "../charts/distribution";
import { LineKey } from "../charts/key";
import { LineChart } from "../charts/lines";
import { happens, line } from "../charts/percentiles";
import { formatRow, parseRow, type Row } from "../comparison";
import * as format from "../format";
import type { Distribution, Histogram, Series } from "../model";
import { describe, moments, refreshSeconds } from "../range";
import { shareAbove } from "../scales";
import { useSeries } from "../series";
import { Trouble } from "../trouble";
import { Holders } from "./holders";
import { overTime } from "./over_time";
import { asked, askedOf, type PageProps } from "./props";

/** The histogram of a range without samples. */
const EMPTY: Histogram = {
  count: 0,
  sum: 0,
  min: null,
  max: null,
  p50: null,
  p90: null,
  p95: null,
  p99: null,
  p999: null,
  buckets: [],
};

type Shown = "take_wait" | "hold" | "gil_wait" | "gil_held" | "parked";

const METRICS: readonly (readonly [Shown, string, string])[] = [
  ["take_wait", "Wait of a take", "take"],
  ["hold", "Hold", "hold"],
  ["gil_wait", "GIL wait of a request", "request"],
  ["gil_held", "GIL held by a request", "request"],
  ["parked", "Wait for a lock or event, without a GIL", "wait"],
];

export function GilPage({ address }: PageProps) {
  const { view } = address;
  const [metric, label, noun] = METRICS.find(([name]) => name === view.metric) ??
    METRICS[0] ?? ["take_wait", "", ""];
  const every = refreshSeconds(address.range);
  const before = view.before ? parseRow(view.before) : null;
  const after = useAnswer<Distribution>(
    "distribution",
    [...asked(address), ["metric", metric]],
    every && Math.max(2, every),
  );
  const series = useSeries(address);
  const earlier = useAnswer<Distribution>("distribution", beforeParameters(before, metric), null);
  const layers = useMemo((): Layer[] => {
    const now: Layer = {
      label: before ? "after" : describe(address.range),
      colour: before ? "teal" : "violet",
      histogram: after.data ? (after.data.histogram ?? EMPTY) : null,
    };
    return before
      ? [
          {
            label: `before: ${before.name}`,
            colour: "red",
            histogram: earlier.data?.histogram ?? null,
          },
          now,
        ]
      : [now];
  }, [after.data, earlier.data, view.before, JSON.stringify(address.range)]);
  const intervals = useMemo(() => {
    const all = [
      ...(after.data?.switch_intervals ?? []),
      ...(before ? (earlier.data?.switch_intervals ?? []) : []),
    ];
    return [...new Set(all)].sort((a, b) => a - b);
  }, [after.data, earlier.data, view.before]);

  const weigh = view.weigh === "time" ? "time" : "number";
  const axis = view.axis === "linear" ? "linear" : "log";
  return (
    <>
      <Trouble answers={[after, series, ...(before ? [earlier] : [])]} />
      <Before address={address} now={null} before={before} />
      <DistributionChart
        title={label}
        note={noteOf(layers.at(-1)?.histogram ?? null, after.data?.switch_intervals ?? [], metric)}
        noun={noun}
        layers={layers}
        intervals={metric === "gil_held" ? [] : intervals}
        weigh={weigh}
        axis={axis}
        stale={after.stale}
        tools={
          <>
            <Pick
              label="What"
              value={metric}
              onPick={(value) => look("metric", value)}
              options={METRICS.map(([name, text]) => [name, text])}
            />
            <Pick
              label="Weight"
              value={weigh}
              onPick={(value) => look("weigh", value)}
              options={[
                ["number", `share of the ${noun}s`],
                ["time", "share of the time"],
              ]}
            />
            <Pick
              label="Axis"
              value={axis}
              onPick={(value) => look("axis", value)}
              options={[
                ["log", "logarithmic"],
                ["linear", "linear"],
              ]}
            />
          </>
        }
      />
      {series.data && <Shares series={series.data} stale={series.stale} />}
      <Holders address={address} />
    </>
  );
}

function beforeParameters(before: Row | null, metric: Shown): [string, string][] {
  if (!before)
    return [
      ["from", "-1"],
      ["metric", metric],
    ];
  return [...askedOf(before), ["metric", metric]];
}

const NONE =
  "None in this range: no thread had to wait. A free-threaded process has no GIL to wait for, and mod_wsgi reports waits per request only.";

function noteOf(
  histogram: Distribution["histogram"],
  intervals: number[],
  metric: Shown,
): string | undefined {
  const [interval] = intervals;
  if (histogram && !histogram.count) return NONE;
  if (!histogram || interval === undefined || metric !== "take_wait") return undefined;
  const longer = shareAbove(histogram, interval);
  return `${format.share(longer)} of the contended takes waited longer than one switch interval (${intervals.map(format.seconds).join(", ")}).`;
}

function Pick(props: {
  label: string;
  value: string;
  options: (readonly [string, string])[];
  onPick: (value: string) => void;
}) {
  return (
    <label class="inline">
      <span class="sr">{props.label}</span>
      <select value={props.value} onChange={(event) => props.onPick(event.currentTarget.value)}>
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The controls of the overlaid range: a range kept earlier, or the one before the present one. */
function Before({ address, before }: PageProps & { before: Row | null }) {
  const keep = (times: number) => {
    const { from, to } = moments(address.range, Date.now() / 1000);
    const length = to - from;
    const row = {
      name: `${format.clock(from - times * length)} – ${format.clock(to - times * length)}`,
      from: from - times * length,
      to: to - times * length,
      selection: address.selection,
    };
    go({ view: { ...address.view, before: formatRow(row) } });
  };
  return (
    <section class="bar" aria-label="Before and after">
      {before ? (
        <>
          <span>
            <LineKey hue="red" index={0} /> Before: {before.name}
          </span>
          <button type="button" onClick={() => go({ view: { ...address.view, before: "" } })}>
            Remove
          </button>
        </>
      ) : (
        <span class="note">Before and after a change:</span>
      )}
      <button type="button" onClick={() => keep(0)}>
        Keep this range as "before"
      </button>
      <button type="button" onClick={() => keep(1)}>
        Overlay the previous range
      </button>
      {address.rows.map((text) => {
        const row = parseRow(text);
        return (
          row && (
            <button
              key={text}
              type="button"
              onClick={() => go({ view: { ...address.view, before: text } })}
            >
              Before: {row.name}
            </button>
          )
        );
      })}
    </section>
  );
}

function Shares({ series, stale }: { series: Series; stale: boolean }) {
  const { points } = series;
  const drawn = useMemo(() => {
    const of = line.bind(null, points);
    return {
      times: points.map(({ time }) => time),
      shares: [
        of("held", "teal", ({ gil }) => gil?.held, { fill: "zero" }),
        of("handoff", "amber", ({ gil }) => gil && gil.held + gil.handoff, {
          fill: "before",
          said: of("", "grey", ({ gil }) => gil?.handoff).values,
        }),
        of("idle", "grey", ({ gil }) => gil && gil.held + gil.handoff + gil.idle, {
          fill: "before",
          said: of("", "grey", ({ gil }) => gil?.idle).values,
        }),
      ],
      events: [
        of("contended takes", "violet", ({ gil }) => gil?.contended_takes, { width: 2 }),
        of("forced drops", "red", ({ gil }) => gil?.forced_drops),
        ...[of("preemptions", "blue", ({ gil }) => gil?.preemptions)].filter(happens),
      ],
    };
  }, [points]);
  const shared = overTime(series, drawn.times, stale);
  return (
    <section class="grid" aria-label="Over time">
      <LineChart
        {...shared}
        title="Where the GIL's time goes"
        unit={format.share}
        top={1}
        lines={drawn.shares}
      />
      <LineChart {...shared} title="Takes and drops" unit={format.perSecond} lines={drawn.events} />
    </section>
  );
}
