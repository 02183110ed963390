// Which worker threads were busy when: a map of slots over time for each process.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { go } from "../address";
import { useAnswer } from "../answers";
import { Card } from "../charts/card";
import { Drawing, type Point } from "../charts/drawing";
import * as format from "../format";
import type { Slots } from "../model";
import { isLive, type Range, refreshSeconds, stepOf } from "../range";
import { colour, FONT } from "../theme";
import { Trouble, Waiting } from "../trouble";
import { asked, type PageProps } from "./props";

// More are more than can be looked at, and than a browser draws in a second.
const MAX_MAPS = 48;
const LEFT = 34;
const RIGHT = 8;
const TOP = 6;
const BOTTOM = 20;
const MAX_ROW = 20;
const MIN_ROW = 5;
const USUAL_HEIGHT = 180;

/** Half as many cells in a row as a chart has steps: each is to be seen. */
function pointsOf(range: Range): number {
  const length = isLive(range) ? range.last : range.to - range.from;
  return Math.max(1, Math.round(length / stepOf(2 * length)));
}

export function CapacityPage({ address }: PageProps) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<Slots>(
    "slots",
    [...asked(address), ["points", String(pointsOf(address.range))]],
    every && Math.max(2, every),
  );
  if (!answer.data) return <Waiting answer={answer} />;
  const { times, processes } = answer.data;
  return (
    <>
      <Trouble answers={[answer]} />
      <Scale />
      {processes.length === 0 && (
        <p class="note">No process reported which of its worker threads were busy in this range.</p>
      )}
      {processes.length > MAX_MAPS && (
        <p class="note">
          The first {MAX_MAPS} of {format.counted(processes.length, "process")}; select a group or a
          host to see the others.
        </p>
      )}
      <div class="grid maps">
        {processes.slice(0, MAX_MAPS).map((process) => (
          <SlotMap
            key={`${process.host} ${process.pid}`}
            process={process}
            times={times}
            stale={answer.stale}
          />
        ))}
      </div>
    </>
  );
}

function Scale() {
  return (
    <p class="scale note">
      Each row is a worker thread; idle
      <span class="ramp" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <i key={share} style={{ opacity: shade(share) }} />
        ))}
      </span>
      in a request all the time. Where a column is full, the process has no free thread. Drag to
      zoom in.
    </p>
  );
}

function shade(share: number): number {
  return 0.06 + 0.94 * share;
}

interface Cell {
  column: number;
  row: number;
}

interface MapProps {
  process: Slots["processes"][number];
  times: number[];
  stale: boolean;
}

function SlotMap({ process, times, stale }: MapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<Cell | null>(null);
  const slots = Math.max(1, ...process.busy.map((shares) => shares?.length ?? 0));
  const row = Math.max(MIN_ROW, Math.min(MAX_ROW, Math.floor(USUAL_HEIGHT / slots)));
  const height = TOP + slots * row + BOTTOM;
  const columns = times.length;
  const busyNow = useMemo(() => meanOf(process.busy), [process.busy]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      const size = (width - LEFT - RIGHT) / Math.max(1, columns);
      process.busy.forEach((shares, column) => {
        const x = LEFT + column * size;
        shares?.forEach((share, index) => {
          context.fillStyle = colour("teal");
          context.globalAlpha = shade(Math.min(1, share));
          context.fillRect(x, TOP + index * row, Math.max(1, size - 0.5), row - 1);
        });
      });
      context.globalAlpha = 1;
      context.font = `11px ${FONT}`;
      context.fillStyle = colour("muted");
      context.textBaseline = "middle";
      context.textAlign = "right";
      for (const index of labelled(slots, row)) {
        context.fillText(String(index), LEFT - 6, TOP + index * row + row / 2);
      }
      drawTimes(context, width, TOP + slots * row, times);
      if (cell) {
        context.strokeStyle = colour("ink");
        context.lineWidth = 1.5;
        context.strokeRect(
          LEFT + cell.column * size - 0.5,
          TOP + cell.row * row - 0.5,
          size + 0.5,
          row,
        );
      }
    },
    [process.busy, times, row, slots, columns, cell],
  );

  const columnAt = (x: number, width: number) =>
    Math.floor(((x - LEFT) / (width - LEFT - RIGHT)) * columns);
  const onPoint = (at: Point | null, width: number) => {
    const column = at ? columnAt(at.x, width) : -1;
    const index = at ? Math.floor((at.y - TOP) / row) : -1;
    const inside = column >= 0 && column < columns && index >= 0 && index < slots;
    setCell(inside ? { column, row: index } : null);
  };
  const onStep = (right: number, down: number) => {
    const from = cell ?? { column: columns - 1, row: 0 };
    setCell({
      column: Math.min(columns - 1, Math.max(0, from.column + right)),
      row: Math.min(slots - 1, Math.max(0, from.row + down)),
    });
  };
  const onDrag = (from: number, to: number, width: number) => {
    const step = (times[1] ?? 0) - (times[0] ?? 0);
    const first = times[Math.max(0, columnAt(from, width))];
    const last = times[Math.min(columns - 1, columnAt(to, width))];
    if (first !== undefined && last !== undefined && step > 0) {
      go({ range: { from: first, to: last + step } });
    }
  };
  const title = `Process ${process.pid}`;
  const picked = cell
    ? `Thread ${cell.row} at ${format.clock(times[cell.column])}: ${format.share(process.busy[cell.column]?.[cell.row] ?? null)} busy`
    : "";
  return (
    <Card
      title={title}
      note={`${process.group === undefined ? "" : `${format.groupName(process.group)} · `}${process.host} · ${format.counted(slots, "thread")}, ${format.share(busyNow)} busy`}
      canvas={() => canvas.current}
      table={() => ({
        columns: ["Time", ...Array.from({ length: slots }, (_, index) => `thread ${index}`)],
        rows: times.map((time, column) => [
          format.moment(time),
          ...Array.from({ length: slots }, (_, index) =>
            format.share(process.busy[column]?.[index] ?? null),
          ),
        ]),
      })}
    >
      <Drawing
        height={height}
        label={`${title}: busy threads over time; arrow keys move from cell to cell, Table shows the numbers`}
        cursor={{
          at: cell ? cell.row * columns + cell.column : 0,
          last: slots * columns - 1,
          text: picked || "no cell is picked",
        }}
        draw={draw}
        onPoint={onPoint}
        onStep={onStep}
        onDrag={onDrag}
        stale={stale}
        canvas={canvas}
      />
      <p class="readout">{picked || <>&nbsp;</>}</p>
    </Card>
  );
}

function meanOf(busy: (number[] | null)[]): number | null {
  const known = busy.flatMap((shares) => shares ?? []);
  return known.length ? known.reduce((sum, share) => sum + share, 0) / known.length : null;
}

/** The rows whose number has room. */
function labelled(slots: number, row: number): number[] {
  const every = row >= 11 ? 1 : Math.ceil(12 / row);
  return Array.from({ length: slots }, (_, index) => index).filter((index) => index % every === 0);
}

function drawTimes(
  context: CanvasRenderingContext2D,
  width: number,
  top: number,
  times: number[],
): void {
  const marks = Math.max(1, Math.min(6, Math.floor((width - LEFT) / 110)));
  context.textBaseline = "top";
  for (let mark = 0; mark <= marks; mark++) {
    const index = Math.round((mark / marks) * (times.length - 1));
    const x = LEFT + ((width - LEFT - RIGHT) * mark) / marks;
    context.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
    context.fillText(format.clock(times[index]), x, top + 5);
  }
}
