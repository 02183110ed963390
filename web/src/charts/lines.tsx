// Values over time, by uPlot: lines, bands between percentiles, marks of starts and ends. Dragging
// selects a range; arrow keys move the cursor, which all charts of a page share.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { endingOf, isEnd, type Lifecycle, reasonOf, said as saidOf } from "../events";
import { clock, moment, timeTick } from "../format";
import { linearTicks } from "../scales";
import { type SettingChange, settingAt } from "../settings";
import { type Colour, colour, FONT, useTheme } from "../theme";
import { Card } from "./card";
import { dashesOf, LineKey } from "./key";

export interface Line {
  label: string;
  values: (number | null)[];
  /** The values for legend and table where `values` are sums with the lines below. */
  said?: (number | null)[];
  colour: Colour;
  opacity?: number;
  width?: number;
  /** Fills down to the line before this one, or to zero. */
  fill?: "before" | "zero";
}

interface Props {
  title: string;
  note?: string | undefined;
  unit: (value: number | null) => string;
  /** Ticks of the y axis are multiples of powers of two. */
  binary?: boolean;
  /** The axis reaches at least this high. */
  top?: number;
  /** A limit to draw, and its name. */
  limit?: { value: number; label: string } | undefined;
  times: number[];
  from: number;
  to: number;
  lines: Line[];
  markers?: Lifecycle[] | undefined;
  /** When the switch interval or the policy changed. */
  settings?: SettingChange[] | undefined;
  stale?: boolean;
  wide?: boolean;
  onRange: (from: number, to: number) => void;
}

const HEIGHT = 180;

/** Seconds between ticks, from one to thirty days. */
const TIME_STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[60, 120, 300, 600, 900, 1_800],
  ...[3_600, 7_200, 10_800, 21_600, 43_200],
  ...[86_400, 172_800, 604_800, 1_209_600, 2_592_000],
];

function options(props: () => Props, width: number, onCursor: (index: number | null) => void) {
  const settings: uPlot.Options = {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 24, 0, 0],
    cursor: {
      sync: { key: "time", setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      y: false,
    },
    scales: {
      x: { time: true, range: () => [props().from, props().to] },
      y: {
        range: (_, __, max) => [
          0,
          Math.max(props().top ?? 0, (props().limit?.value ?? 0) * 1.05, (max ?? 0) * 1.08) || 1,
        ],
      },
    },
    axes: [
      {
        stroke: () => colour("muted"),
        font: `11px ${FONT}`,
        grid: { show: false },
        ticks: { stroke: () => colour("line"), size: 4, width: 1 },
        size: 26,
        gap: 4,
        space: 64,
        incrs: TIME_STEPS,
        values: (_, splits, __, ___, step) => splits.map((time) => timeTick(time, step)),
      },
      {
        stroke: () => colour("muted"),
        font: `11px ${FONT}`,
        grid: { stroke: () => colour("line"), width: 1 },
        ticks: { show: false },
        size: 66,
        gap: 6,
        splits: (_, __, low, high) => {
          const base = props().binary ? 2 ** (10 * Math.floor(Math.log2(high || 1) / 10)) : 1;
          return linearTicks(high / base, 4)
            .map((tick) => tick * base)
            .filter((tick) => tick >= low && tick <= high);
        },
        values: (_, splits) => splits.map((value) => props().unit(value)),
      },
    ],
    series: [
      {},
      ...props().lines.map(
        (line, index): uPlot.Series => ({
          label: line.label,
          stroke: () => colour(line.colour, line.opacity),
          width: line.width ?? 1.5,
          dash: dashesOf(index),
          ...(line.fill === "zero" ? { fill: () => colour(line.colour, 0.14) } : {}),
          points: {
            show: (_: uPlot, index: number) => isolated(props().lines[index - 1]),
            size: 4,
          },
        }),
      ),
    ],
    bands: props().lines.flatMap((line, index): uPlot.Band[] =>
      line.fill === "before"
        ? [{ series: [index + 1, index], fill: () => colour(line.colour, 0.13) }]
        : [],
    ),
    hooks: {
      draw: [(chart) => drawMarks(chart, props())],
      setSelect: [
        (chart) => {
          const { left, width: size } = chart.select;
          if (size < 4) return;
          const [from, to] = [chart.posToVal(left, "x"), chart.posToVal(left + size, "x")];
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          props().onRange(from, to);
        },
      ],
      setCursor: [(chart) => onCursor(chart.cursor.idx ?? null)],
    },
  };
  return settings;
}

/** Whether no two adjacent values are known: such a line is invisible without points. */
function isolated(line: Line | undefined): boolean {
  if (!line) return false;
  return !line.values.some((value, index) => value !== null && line.values[index + 1] != null);
}

/** A line at each change of the setting, and the setting where it has room before the next line. */
function drawSettings(chart: uPlot, { settings, from, to }: Props): void {
  const { ctx: context, bbox } = chart;
  const ratio = devicePixelRatio;
  const shown = (settings ?? []).filter(({ time }) => time <= to);
  context.font = `${10 * ratio}px ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillStyle = colour("muted");
  context.strokeStyle = colour("muted", 0.5);
  context.setLineDash([]);
  shown.forEach(({ time, setting }, index) => {
    const next = Math.min(shown[index + 1]?.time ?? to, to);
    if (next < from) return;
    const x = Math.round(chart.valToPos(Math.max(time, from), "x", true));
    if (time >= from) {
      context.beginPath();
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
    }
    const room = chart.valToPos(next, "x", true) - x - 6 * ratio;
    if (context.measureText(setting).width <= room) {
      context.fillText(setting, x + 3 * ratio, bbox.top + ratio);
    }
  });
}

function drawMarks(chart: uPlot, props: Props): void {
  const { markers, limit, from, to } = props;
  const { ctx: context, bbox } = chart;
  const ratio = devicePixelRatio;
  context.save();
  context.lineWidth = ratio;
  drawSettings(chart, props);
  for (const event of markers ?? []) {
    if (event.time < from || event.time > to) continue;
    const x = Math.round(chart.valToPos(event.time, "x", true));
    const unplanned = isEnd(event) && endingOf(event) === "unplanned";
    context.strokeStyle = unplanned ? colour("red") : colour("grey", 0.7);
    context.setLineDash([3 * ratio, 3 * ratio]);
    context.beginPath();
    context.moveTo(x, bbox.top);
    context.lineTo(x, bbox.top + bbox.height);
    context.stroke();
  }
  if (limit) {
    const y = Math.round(chart.valToPos(limit.value, "y", true));
    context.strokeStyle = colour("red", 0.8);
    context.setLineDash([6 * ratio, 4 * ratio]);
    context.beginPath();
    context.moveTo(bbox.left, y);
    context.lineTo(bbox.left + bbox.width, y);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colour("muted");
    context.font = `${11 * ratio}px ${FONT}`;
    context.textAlign = "right";
    context.textBaseline = "bottom";
    context.fillText(limit.label, bbox.left + bbox.width - 4 * ratio, y - 2 * ratio);
  }
  context.restore();
}

export function LineChart(given: Props) {
  const { title, note, unit, times, lines, markers, settings } = given;
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(given);
  latest.current = given;
  const [cursor, setCursor] = useState<number | null>(null);
  const theme = useTheme();
  const shape = lines.map((line) => line.label).join();

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const made = new uPlot(
      options(() => latest.current, element.clientWidth || 300, setCursor),
      dataOf(latest.current),
      element,
    );
    chart.current = made;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth) made.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [shape]);

  useEffect(() => {
    chart.current?.setData(dataOf(latest.current));
  }, [given.times, given.lines, given.markers, given.from, given.to]);

  useEffect(() => {
    if (theme) chart.current?.redraw(false);
  }, [theme]);

  const onKeyDown = (event: KeyboardEvent) => {
    const made = chart.current;
    if (!made || !times.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = cursor ?? times.length - 1;
    const step = event.shiftKey ? 10 : 1;
    const next = {
      ArrowLeft: Math.max(0, now - step),
      ArrowRight: Math.min(times.length - 1, now + step),
      Home: 0,
      End: times.length - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    // The first step may begin before the range, and uPlot ignores a cursor left of the chart.
    const end = made.over.clientWidth - 1;
    const left = Math.min(end, Math.max(0, made.valToPos(times[next] ?? 0, "x")));
    made.setCursor({ left, top: HEIGHT / 3 }, true);
  };

  const at = cursor !== null && cursor < times.length ? cursor : null;
  const last = at ?? lastKnown(lines);
  const isLatest = last !== null && last >= times.length - 3;
  const near =
    at === null ? undefined : nearest(markers, times[at] ?? 0, (given.to - given.from) / 80);

  return (
    <Card
      title={title}
      note={note}
      wide={given.wide}
      legend={lines.map((line, index) => ({
        label: line.label,
        colour: colour(line.colour, line.opacity),
        dashes: dashesOf(index),
      }))}
      canvas={() => holder.current?.querySelector("canvas") ?? null}
      table={() => ({
        columns: ["Time", ...lines.map((line) => line.label)],
        rows: times.map((time, index) => [
          moment(time),
          ...lines.map((line) => unit(said(line, index))),
        ]),
      })}
    >
      <dl class="legend">
        <div class="when">
          <dt class="sr">Time</dt>
          <dd>{at === null && isLatest ? "latest" : clock(times[last ?? -1])}</dd>
        </div>
        {lines.map((line, index) => (
          <div key={line.label}>
            <dt>
              <LineKey hue={line.colour} index={index} opacity={line.opacity ?? 1} />
              {line.label}
            </dt>
            <dd>{last === null ? unit(null) : unit(said(line, last))}</dd>
          </div>
        ))}
        {at !== null && settings && (
          <div class="when">
            <dt>setting</dt>
            <dd>{settingAt(settings, times[at] ?? 0)}</dd>
          </div>
        )}
        {near && (
          <div class="when">
            <dt>{saidOf(near)}</dt>
            <dd>
              {near.pid} {reasonOf(near)}
            </dd>
          </div>
        )}
      </dl>
      <div
        ref={holder}
        class={`plot ${given.stale ? "stale" : ""}`}
        tabIndex={0}
        role="slider"
        aria-label={`${title} over time; arrow keys move the cursor, Table shows the numbers`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, times.length - 1)}
        aria-valuenow={Math.max(0, last ?? 0)}
        aria-valuetext={
          last === null
            ? "nothing is known"
            : [
                clock(times[last]),
                ...lines.map((line) => `${line.label} ${unit(said(line, last))}`),
              ].join(", ")
        }
        onKeyDown={onKeyDown}
        onBlur={() => chart.current?.setCursor({ left: -10, top: -10 })}
      />
    </Card>
  );
}

function said(line: Line, index: number): number | null {
  return (line.said ?? line.values)[index] ?? null;
}

function dataOf({ times, lines }: Props): uPlot.AlignedData {
  return [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

/** The last index with a value: the newest step may have none yet. */
function lastKnown(lines: Line[]): number | null {
  for (let index = (lines[0]?.values.length ?? 0) - 1; index >= 0; index--) {
    if (lines.some((line) => line.values[index] != null)) return index;
  }
  return null;
}

function nearest(markers: Lifecycle[] | undefined, time: number, within: number) {
  return markers?.find((event) => Math.abs(event.time - time) <= within);
}
