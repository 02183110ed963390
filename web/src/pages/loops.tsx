// Event loops: how long they look for no events, what they do meanwhile, and which processes have
// late ones.

import { useMemo } from "preact/hooks";
import { type Address, target } from "../address";
import { useAnswer } from "../answers";
import { DistributionChart, type Layer } from "../charts/distribution";
import { FlameGraph } from "../charts/flame";
import { LineChart } from "../charts/lines";
import { happens, line, percentileLines } from "../charts/percentiles";
import * as format from "../format";
import { place } from "../frames";
import type {
  Distribution,
  Flame,
  Holders,
  LateLine,
  LoopUse,
  Now,
  Series,
  Summary,
} from "../model";
import { describe, isLive, refreshSeconds } from "../range";
import { useSeries } from "../series";
import type { Colour } from "../theme";
import { Trouble, Waiting } from "../trouble";
import { Bar, Figures } from "./figures";
import { Filter } from "./filter";
import { overTime } from "./over_time";
import { asked, type PageProps } from "./props";

const NO_INTERVALS: number[] = [];

export function LoopsPage({ address, now }: PageProps) {
  const every = refreshSeconds(address.range);
  const series = useSeries(address);
  const iterations = useAnswer<Distribution>(
    "distribution",
    [...asked(address), ["metric", "loop_iteration"]],
    every && Math.max(3, every),
  );
  const holders = useAnswer<Holders>("holders", asked(address), every && Math.max(3, every));
  const layers = useMemo(
    (): Layer[] => [
      {
        label: describe(address.range),
        colour: "violet",
        histogram: iterations.data?.histogram ?? null,
      },
    ],
    [iterations.data, JSON.stringify(address.range)],
  );
  if (!series.data) return <Waiting answer={series} />;
  const { points } = series.data;
  return (
    <>
      <Trouble answers={[series, iterations, holders]} />
      {points.some(({ summary }) => summary?.loops) ? (
        <>
          <Charts series={series.data} stale={series.stale} />
          <DistributionChart
            title="Iterations"
            note="An iteration lasts from the end of a wait for events to the beginning of the next one. An event that comes meanwhile waits for its end."
            noun="iteration"
            layers={layers}
            intervals={NO_INTERVALS}
            weigh="time"
            axis="log"
            stale={iterations.stale}
            height={220}
          />
          <LateLines lines={holders.data?.late_lines ?? []} />
          <Graph address={address} />
          {isLive(address.range) && now && <Processes now={now} />}
        </>
      ) : (
        <section class="card">
          <p class="note">
            No process with an event loop reported in this range. A loop is a thread that waits for
            events on one epoll descriptor again and again, as those of asyncio, uvloop, trio,
            Tornado and gevent.
          </p>
        </section>
      )}
    </>
  );
}

/** The lines of parts, each as wide as its share and above the one before it. */
function parts(points: Series["points"], of: (loops: LoopUse) => [number, number, number]) {
  const sums = ([first, second, third]: [number, number, number]) =>
    [first, first + second, first + second + third] as const;
  return (["computed", "waited", "blocked"] as const).map((label, index) => {
    const hue = (["teal", "amber", "red"] as const)[index] ?? "grey";
    const said = line(points, label, hue, ({ loops }) => loops && of(loops)[index]).values;
    return line(points, label, hue, ({ loops }) => loops && sums(of(loops))[index], {
      fill: index ? "before" : "zero",
      said,
    });
  });
}

/** The present iteration, where it is longer than all that have ended. */
function notEnded({ loops, loop_iteration }: Summary): number | null {
  const present = loops?.iterating ?? 0;
  return present > (loop_iteration?.max ?? 0) ? present : null;
}

function Charts({ series, stale }: { series: Series; stale: boolean }) {
  const { points } = series;
  const drawn = useMemo(() => {
    const of = line.bind(null, points);
    const limits = points.map(({ summary }) => summary?.loops?.late_limit ?? 0);
    return {
      times: points.map(({ time }) => time),
      limit: Math.max(0, ...limits),
      late: parts(points, (loops) => [loops.late_computed, loops.late_waited, loops.late_blocked]),
      all: parts(points, (loops) => [loops.computed, loops.waited, loops.blocked]),
      iteration: [
        ...percentileLines(points, "loop_iteration", "blue"),
        of("longest", "grey", ({ loop_iteration }) => loop_iteration?.max),
        ...[of("not ended", "red", notEnded)].filter(happens),
      ],
      rate: [
        of("iterations", "violet", ({ loops }) => loops?.iterations, { fill: "zero", width: 2 }),
      ],
      lateRate: [of("late", "red", ({ loops }) => loops?.late, { fill: "zero", width: 2 })],
    };
  }, [points]);
  const shared = overTime(series, drawn.times, stale);
  const late = `${format.seconds(drawn.limit)} or longer`;
  return (
    <section class="grid" aria-label="Over time">
      <LineChart
        {...shared}
        title="What late loops do"
        note={`The share of the loops' time that is in iterations of ${late}: with the GIL, waiting for it, and the rest, as a sleep or a file. An iteration counts when it has ended.`}
        unit={format.share}
        lines={drawn.late}
      />
      <LineChart
        {...shared}
        title="Iteration"
        unit={format.seconds}
        lines={drawn.iteration}
        limit={drawn.limit ? { value: drawn.limit, label: "late" } : undefined}
      />
      <LineChart
        {...shared}
        title="What loops do"
        note="The share of the loops' time that is in iterations. In the rest they wait for events."
        unit={format.share}
        top={1}
        lines={drawn.all}
      />
      <LineChart
        {...shared}
        title="Late iterations"
        unit={format.perSecond}
        lines={drawn.lateRate}
      />
      <LineChart {...shared} title="All iterations" unit={format.perSecond} lines={drawn.rate} />
    </section>
  );
}

const COLOURS: Record<string, Colour> = { computed: "teal", waited: "amber", blocked: "red" };

function LateLines({ lines }: { lines: LateLine[] }) {
  const all = lines.reduce((sum, { late }) => sum + late, 0);
  return (
    <Figures
      title="What loops are late for: lines"
      note="the innermost Python call of the loop's thread; where it waited for the GIL, of the thread that held it"
      empty="No event loop was late in this range, or the processes do not report lines."
      rows={lines}
      id={(row) =>
        JSON.stringify([row.function, row.file, row.line, row.callback, row.holder, row.part])
      }
      name={(row) => (
        <>
          {row.function} {row.file && <small>{`(${place(row)})`}</small>}
        </>
      )}
      columns={[
        { label: "The loop", cell: ({ part }) => part || "…", text: true },
        { label: "Callback", cell: ({ callback }) => callback, text: true },
        { label: "Held by", cell: ({ holder }) => holder, text: true },
        { label: "Late", cell: ({ late }) => format.seconds(late), by: ({ late }) => late },
        {
          label: "of all",
          cell: ({ late, part }) => (
            <Bar share={all ? late / all : 0} colour={COLOURS[part] ?? "grey"} />
          ),
        },
      ]}
    />
  );
}

const CALLS = "What loops are late for: calls";

function Graph({ address }: { address: Address }) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<Flame>(
    "flame_graph",
    [...asked(address), ["of", "late"]],
    every && Math.max(5, every),
  );
  const wanted = address.view.q ?? "";
  if (!answer.data?.calls[0]?.waited) return null;
  return (
    <section class="card" aria-label={CALLS}>
      <header>
        <h3>
          {CALLS}{" "}
          <small>a call is as wide as the time for which loops were late while it ran</small>
        </h3>
      </header>
      <Trouble answers={[answer]} />
      <div class="bar">
        <Filter value={wanted} label="Search" />
      </div>
      <FlameGraph
        label="Flame graph"
        calls={answer.data.calls}
        wanted={wanted}
        stale={answer.stale}
        whole="all late time"
      />
    </section>
  );
}

/** The processes with event loops, the latest first. */
function Processes({ now }: { now: Now }) {
  const rows = now.processes.flatMap(({ summary, ...process }) =>
    summary.loops ? [{ ...process, summary, loops: summary.loops }] : [],
  );
  const share = ({ late_computed, late_waited, late_blocked }: LoopUse) =>
    late_computed + late_waited + late_blocked;
  return (
    <Figures
      title="Processes with event loops, now"
      heading="Process"
      rows={rows.sort((one, other) => share(other.loops) - share(one.loops))}
      id={({ host, pid }) => `${host} ${pid}`}
      name={({ host, pid, group }) => (
        <a
          href={target({
            selection: { hosts: [host], groups: [], pids: [String(pid)], recording: "" },
          })}
        >
          {pid} <small>{format.groupName(group)}</small>
        </a>
      )}
      columns={[
        { label: "Iterations", cell: ({ loops }) => format.perSecond(loops.iterations) },
        {
          label: "p99",
          cell: ({ summary }) => format.seconds(summary.loop_iteration?.p99),
          by: ({ summary }) => summary.loop_iteration?.p99,
        },
        {
          label: "Longest",
          cell: ({ summary }) => format.seconds(summary.loop_iteration?.max),
          by: ({ summary }) => summary.loop_iteration?.max,
        },
        {
          label: "Late",
          cell: ({ loops }) => format.perSecond(loops.late),
          by: ({ loops }) => loops.late,
        },
        {
          label: "computed",
          cell: ({ loops }) => <Bar share={loops.late_computed} colour="teal" />,
          by: ({ loops }) => loops.late_computed,
        },
        {
          label: "waited",
          cell: ({ loops }) => <Bar share={loops.late_waited} colour="amber" />,
          by: ({ loops }) => loops.late_waited,
        },
        {
          label: "blocked",
          cell: ({ loops }) => <Bar share={loops.late_blocked} colour="red" />,
          by: ({ loops }) => loops.late_blocked,
        },
      ]}
    />
  );
}
