// Histograms of durations over a logarithmic axis, superimposed for before and after, with the
// multiples of the switch interval marked: a waiting thread asks for the GIL once per interval, so
// waits gather above the marks if there is a convoy.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { count, counted, seconds, share } from "../format";
import type { Histogram } from "../model";
import {
  type Bin,
  barsPerPower,
  bins,
  densities,
  evenBins,
  extent,
  linearTicks,
  logTicks,
  weights,
} from "../scales";
import { type Colour, colour, FONT } from "../theme";
import { Card } from "./card";
import { Drawing, type Point } from "./drawing";
import { dashesOf, LineKey } from "./key";

export interface Layer {
  label: string;
  colour: Colour;
  histogram: Histogram | null;
}

interface Props {
  title: string;
  note?: string | undefined;
  /** The noun for one entry: "take", "request". */
  noun: string;
  layers: Layer[];
  /** In seconds; the chart marks the multiples of each. */
  intervals: number[];
  weigh: "number" | "time";
  axis: "log" | "linear";
  stale?: boolean;
  height?: number;
  tools?: preact.ComponentChildren;
}

const LEFT = 58;
const RIGHT = 14;
const TOP = 22;
const BOTTOM = 24;
const MULTIPLES = 8;
const LINEAR_BARS = 100;

interface Frame {
  from: number;
  to: number;
  top: number;
  x: (value: number, width: number) => number;
}

function frameOf(layers: { heights: number[] }[], from: number, to: number, log: boolean): Frame {
  const top = Math.max(0.01, ...layers.flatMap(({ heights }) => heights));
  return {
    from,
    to,
    top: linearTicks(top, 4).at(-1) ?? top,
    x: (value, width) => {
      const room = width - LEFT - RIGHT;
      const part = log ? Math.log(Math.max(value, from) / from) / Math.log(to / from) : value / to;
      return LEFT + room * Math.min(1, Math.max(0, part));
    },
  };
}

export function DistributionChart(props: Props) {
  const { title, noun, layers, intervals, weigh, axis } = props;
  const log = axis === "log";
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<number | null>(null);

  const drawn = useMemo(() => {
    const known = layers.flatMap((layer) =>
      layer.histogram?.count ? [{ ...layer, histogram: layer.histogram }] : [],
    );
    const { from, to } = extent(known.map(({ histogram }) => histogram));
    const end = log ? to : linearEnd(layers);
    // All layers have bars of the same width, or their heights could not be compared.
    const perPower = barsPerPower(Math.min(...known.map(({ histogram }) => histogram.count)));
    const made = known.map((layer) => {
      const bars = log
        ? bins(layer.histogram, from, end, perPower)
        : evenBins(layer.histogram, end, LINEAR_BARS);
      const shares = weights(bars, weigh);
      return { ...layer, bars, shares, heights: log ? densities(bars, shares, perPower) : shares };
    });
    return { made, perPower, frame: frameOf(made, from, end, log) };
  }, [layers, weigh, log]);
  const { made, frame, perPower } = drawn;

  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, height: number) => {
      drawAxes(context, width, height, frame, log);
      made.forEach((layer, index) => {
        drawBars(context, width, height, frame, layer, index);
      });
      drawMultiples(context, width, height, frame, intervals);
      if (cursor !== null) drawCursor(context, width, height, frame.x(cursor, width));
    },
    [made, frame, intervals, cursor, log],
  );

  const valueAt = (x: number, width: number) => {
    const part = Math.min(1, Math.max(0, (x - LEFT) / (width - LEFT - RIGHT)));
    return log ? frame.from * (frame.to / frame.from) ** part : frame.to * part;
  };
  const onPoint = (at: Point | null, width: number) => setCursor(at && valueAt(at.x, width));
  const onStep = (right: number) => {
    const bars = made[0]?.bars ?? [];
    const here = cursor === null ? 0 : bars.findIndex((bin) => cursor < bin.high);
    const next =
      bars[Math.min(bars.length - 1, Math.max(0, (here < 0 ? bars.length - 1 : here) + right))];
    if (next) setCursor((next.low + next.high) / 2);
  };

  return (
    <Card
      title={title}
      note={props.note}
      wide
      tools={props.tools}
      legend={made.map((layer, index) => ({
        label: layer.label,
        colour: colour(layer.colour),
        dashes: dashesOf(index),
      }))}
      canvas={() => canvas.current}
      table={() => ({
        columns: [
          "From",
          "to",
          ...made.flatMap(({ label }) => [`${label}: ${noun}s`, `${label}: share`]),
        ],
        rows: (made[0]?.bars ?? [])
          .map((bin, index) => ({ bin, index }))
          .filter(({ index }) => made.some(({ bars }) => bars[index]?.count))
          .map(({ bin, index }) => [
            seconds(bin.low),
            seconds(bin.high),
            ...made.flatMap(({ bars, shares }) => [
              count(bars[index]?.count ?? 0),
              share(shares[index]),
            ]),
          ]),
      })}
    >
      <div class="percentiles">
        {layers.map((layer, index) => (
          <Percentiles key={layer.label} layer={layer} index={index} noun={noun} />
        ))}
      </div>
      <Drawing
        height={props.height ?? 260}
        label={`${title}: distribution of ${noun}s over time waited; arrow keys move the cursor, Table shows the numbers`}
        cursor={{
          at: cursor === null ? 0 : (made[0]?.bars ?? []).findIndex((bin) => cursor < bin.high),
          last: (made[0]?.bars.length ?? 0) - 1,
          text:
            cursor === null
              ? "no bar is picked"
              : made.map((layer) => readout(layer, cursor, noun)).join("; "),
        }}
        draw={draw}
        onPoint={onPoint}
        onStep={onStep}
        stale={props.stale ?? false}
        canvas={canvas}
      />
      <p class="note">
        The height of a bar is its share of the {weigh === "time" ? "time" : `${noun}s`}.
        {log && ` ${perPower} bars span a doubling.`}
      </p>
      <p class="readout">
        {cursor === null ? (
          <>&nbsp;</>
        ) : (
          made.map((layer) => <span key={layer.label}>{readout(layer, cursor, noun)}</span>)
        )}
      </p>
    </Card>
  );
}

function linearEnd(layers: Layer[]): number {
  const usual = Math.max(1e-4, ...layers.map(({ histogram }) => (histogram?.p999 ?? 0) * 1.2));
  return linearTicks(usual, 8).at(-1) ?? usual;
}

function Percentiles({ layer, index, noun }: { layer: Layer; index: number; noun: string }) {
  const { histogram } = layer;
  return (
    <dl class="stats">
      <div class="name">
        <dt>
          <LineKey hue={layer.colour} index={index} />
          {layer.label}
        </dt>
        <dd>{histogram ? counted(histogram.count, noun) : "no data"}</dd>
      </div>
      {histogram &&
        (["p50", "p90", "p95", "p99", "p999", "max"] as const).map((name) => (
          <div key={name}>
            <dt>{name === "p999" ? "p99.9" : name}</dt>
            <dd>{histogram.count ? seconds(histogram[name]) : seconds(null)}</dd>
          </div>
        ))}
    </dl>
  );
}

function readout(
  layer: { label: string; bars: Bin[]; shares: number[] },
  at: number,
  noun: string,
): string {
  const index = layer.bars.findIndex((bin) => at < bin.high);
  const bin = layer.bars[index];
  if (!bin) return "";
  const number = counted(Math.round(bin.count), noun);
  return `${layer.label}: ${seconds(bin.low)} to ${seconds(bin.high)}, ${number}, ${share(layer.shares[index])}`;
}

function drawAxes(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  frame: Frame,
  log: boolean,
): void {
  const bottom = height - BOTTOM;
  context.font = `11px ${FONT}`;
  context.lineWidth = 1;
  context.fillStyle = colour("muted");
  context.strokeStyle = colour("line");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of linearTicks(frame.top, 4).filter((tick) => tick <= frame.top * 1.001)) {
    const y = Math.round(bottom - (tick / frame.top) * (bottom - TOP)) + 0.5;
    context.beginPath();
    context.moveTo(LEFT, y);
    context.lineTo(width - RIGHT, y);
    context.stroke();
    context.fillText(share(tick), LEFT - 8, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const room = Math.floor((width - LEFT - RIGHT) / 52);
  const ticks = log
    ? logTicks(frame.from, frame.to, room)
    : linearTicks(frame.to, Math.min(8, room));
  for (const tick of ticks.filter((tick) => tick <= frame.to * 1.001)) {
    const x = Math.round(frame.x(tick, width)) + 0.5;
    context.beginPath();
    context.moveTo(x, bottom);
    context.lineTo(x, bottom + 4);
    context.stroke();
    const text = seconds(tick);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(x, width - half), bottom + 8);
  }
}

function drawBars(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  frame: Frame,
  layer: { colour: Colour; bars: Bin[]; heights: number[] },
  index: number,
): void {
  const bottom = height - BOTTOM;
  const y = (part: number) => bottom - (part / frame.top) * (bottom - TOP);
  const path = new Path2D();
  path.moveTo(frame.x(layer.bars[0]?.low ?? 0, width), bottom);
  layer.bars.forEach((bin, place) => {
    const top = y(layer.heights[place] ?? 0);
    path.lineTo(frame.x(bin.low, width), top);
    path.lineTo(frame.x(bin.high, width), top);
  });
  path.lineTo(frame.x(layer.bars.at(-1)?.high ?? 0, width), bottom);
  context.fillStyle = colour(layer.colour, index > 0 ? 0.12 : 0.32);
  context.fill(path);
  context.strokeStyle = colour(layer.colour);
  context.lineWidth = index > 0 ? 1.75 : 1.25;
  context.setLineDash(dashesOf(index));
  context.stroke(path);
  context.setLineDash([]);
}

function drawMultiples(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  frame: Frame,
  intervals: number[],
): void {
  context.font = `11px ${FONT}`;
  context.textBaseline = "bottom";
  context.textAlign = "left";
  let free = 0;
  for (const interval of intervals) {
    for (let multiple = 1; multiple <= MULTIPLES; multiple++) {
      const value = interval * multiple;
      if (value > frame.to || value < frame.from) continue;
      const x = Math.round(frame.x(value, width)) + 0.5;
      context.strokeStyle = colour("amber", multiple === 1 ? 1 : 0.65);
      context.setLineDash(multiple === 1 ? [] : [2, 3]);
      context.beginPath();
      context.moveTo(x, TOP - 4);
      context.lineTo(x, height - BOTTOM);
      context.stroke();
      const label = multiple === 1 ? seconds(interval) : `×${multiple}`;
      const size = context.measureText(label).width;
      if (x < free || x + size > width) continue;
      context.fillStyle = colour("amber");
      context.fillText(label, x - 2, TOP - 5);
      free = x + size + 5;
    }
  }
  context.setLineDash([]);
}

function drawCursor(context: CanvasRenderingContext2D, width: number, height: number, x: number) {
  if (x < LEFT || x > width - RIGHT) return;
  context.strokeStyle = colour("ink", 0.5);
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, TOP);
  context.lineTo(Math.round(x) + 0.5, height - BOTTOM);
  context.stroke();
}
