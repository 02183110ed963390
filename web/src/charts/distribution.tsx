// Histograms of durations over a logarithmic axis, one over the other for before and after, with the
// multiples of the switch interval marked: a waiting thread asks for the GIL once each interval, so
// waits gather above them where there is a convoy.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { counted, seconds, share } from "../format";
import type { Histogram } from "../model";
import { type Bin, barsPerPower, bins, extent, linearTicks, logTicks, weights } from "../scales";
import { type Colour, colour, FONT } from "../theme";
import { Card } from "./card";
import { Drawing, type Point } from "./drawing";

export interface Layer {
  label: string;
  colour: Colour;
  histogram: Histogram | null;
}

interface Props {
  title: string;
  note?: string | undefined;
  /** What one entry is: "take", "request". */
  noun: string;
  layers: Layer[];
  /** Seconds; each is marked with its multiples. */
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

interface Frame {
  from: number;
  to: number;
  top: number;
  x: (value: number, width: number) => number;
}

function frameOf(layers: { shares: number[] }[], from: number, to: number, log: boolean): Frame {
  const top = Math.max(0.01, ...layers.flatMap(({ shares }) => shares));
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

/** Bars of one width on the screen: of a power of two on a logarithmic axis, else of the axis itself. */
function barsOf(histogram: Histogram, from: number, to: number, log: boolean): Bin[] {
  const fine = bins(histogram, log ? from : 1e-6, to, log ? barsPerPower(histogram.count) : 16);
  if (log) return fine;
  const bars = 80;
  const made = Array.from({ length: bars }, (_, index) => ({
    low: (to * index) / bars,
    high: (to * (index + 1)) / bars,
    count: 0,
  }));
  for (const bin of fine) {
    const middle = Math.min(to, (bin.low + bin.high) / 2);
    const bar = made[Math.min(bars - 1, Math.floor((middle / to) * bars))];
    if (bar) bar.count += bin.count;
  }
  return made;
}

export function DistributionChart(props: Props) {
  const { title, noun, layers, intervals, weigh, axis } = props;
  const log = axis === "log";
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<number | null>(null);

  const drawn = useMemo(() => {
    const { from, to } = extent(layers.map(({ histogram }) => histogram));
    const end = log ? to : linearEnd(layers);
    const made = layers.flatMap((layer) => {
      if (!layer.histogram?.count) return [];
      const bars = barsOf(layer.histogram, from, end, log);
      return [{ ...layer, histogram: layer.histogram, bars, shares: weights(bars, weigh) }];
    });
    return { made, frame: frameOf(made, from, end, log) };
  }, [layers, weigh, log]);
  const { made, frame } = drawn;

  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, height: number) => {
      drawAxes(context, width, height, frame, log);
      made.forEach((layer, index) => {
        drawBars(context, width, height, frame, layer, index > 0);
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
      legend={made.map((layer) => ({ label: layer.label, colour: colour(layer.colour) }))}
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
              (bars[index]?.count ?? 0).toLocaleString("en-US"),
              share(shares[index]),
            ]),
          ]),
      })}
    >
      <div class="percentiles">
        {layers.map((layer) => (
          <Percentiles key={layer.label} layer={layer} noun={noun} />
        ))}
      </div>
      <Drawing
        height={props.height ?? 260}
        label={`${title}: distribution of ${noun}s over time waited; arrow keys move the cursor, Table shows the numbers`}
        draw={draw}
        onPoint={onPoint}
        onStep={onStep}
        stale={props.stale ?? false}
        canvas={canvas}
      />
      <p class="readout" aria-live="polite">
        {cursor === null ? (
          <>&nbsp;</>
        ) : (
          made.map((layer) => <Readout key={layer.label} {...layer} at={cursor} noun={noun} />)
        )}
      </p>
    </Card>
  );
}

function linearEnd(layers: Layer[]): number {
  const usual = Math.max(1e-4, ...layers.map(({ histogram }) => (histogram?.p999 ?? 0) * 1.2));
  return linearTicks(usual, 8).at(-1) ?? usual;
}

function Percentiles({ layer, noun }: { layer: Layer; noun: string }) {
  const { histogram } = layer;
  return (
    <dl class="stats">
      <div class="name">
        <dt>
          <i class={`swatch ${layer.colour}`} />
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

function Readout(props: {
  label: string;
  bars: Bin[];
  shares: number[];
  at: number;
  noun: string;
}) {
  const index = props.bars.findIndex((bin) => props.at < bin.high);
  const bin = props.bars[index];
  if (!bin) return null;
  return (
    <span>
      {props.label}: {seconds(bin.low)} to {seconds(bin.high)}, {counted(bin.count, props.noun)},{" "}
      {share(props.shares[index])}
    </span>
  );
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
  layer: { colour: Colour; bars: Bin[]; shares: number[] },
  outline: boolean,
): void {
  const bottom = height - BOTTOM;
  const y = (part: number) => bottom - (part / frame.top) * (bottom - TOP);
  const path = new Path2D();
  path.moveTo(frame.x(layer.bars[0]?.low ?? 0, width), bottom);
  layer.bars.forEach((bin, index) => {
    const top = y(layer.shares[index] ?? 0);
    path.lineTo(frame.x(bin.low, width), top);
    path.lineTo(frame.x(bin.high, width), top);
  });
  path.lineTo(frame.x(layer.bars.at(-1)?.high ?? 0, width), bottom);
  context.fillStyle = colour(layer.colour, outline ? 0.12 : 0.32);
  context.fill(path);
  context.strokeStyle = colour(layer.colour);
  context.lineWidth = outline ? 1.75 : 1.25;
  context.setLineDash([]);
  context.stroke(path);
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
