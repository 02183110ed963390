// When processes came and went, and why: a Gantt chart of their lives, then each event.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { go } from "../address";
import { useAnswer } from "../answers";
import { Card } from "../charts/card";
import { Drawing, fitted, type Point } from "../charts/drawing";
import { type Ending, endingOf, isEnd, type Lifecycle, reasonOf, said } from "../events";
import * as format from "../format";
import { type Life, livesOf } from "../lives";
import type { LifecycleAnswer } from "../model";
import { moments, refreshSeconds } from "../range";
import { type Colour, colour, FONT } from "../theme";
import { Trouble, Waiting } from "../trouble";
import { asked, type PageProps } from "./props";

const LIMIT = 500;
const MAX_LIVES = 60;

const HUES: Record<Ending, Colour> = { planned: "grey", limit: "amber", unplanned: "red" };
const SIGNS: Record<Ending, string> = { planned: "❙", limit: "▲", unplanned: "✕" };
const ENDINGS: Record<Ending, string> = {
  planned: "planned end",
  limit: "a limit was reached",
  unplanned: "unplanned end",
};

export function LifecyclePage({ address, now }: PageProps) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<LifecycleAnswer>(
    "lifecycle",
    [...asked(address), ["limit", String(LIMIT)]],
    every && Math.max(2, every),
  );
  if (!answer.data) return <Waiting answer={answer} />;
  const { events } = answer.data;
  const span = moments(address.range, now?.time ?? Date.now() / 1000);
  return (
    <>
      <Trouble answers={[answer]} />
      <Gantt lives={livesOf(events, now, address.selection)} {...span} stale={answer.stale} />
      <EventList events={events} />
    </>
  );
}

const ROW = 20;
const BOTTOM = 22;

function Gantt({
  lives,
  from,
  to,
  stale,
}: {
  lives: Life[];
  from: number;
  to: number;
  stale: boolean;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [picked, setPicked] = useState<number | null>(null);
  const shown = useMemo(
    () => lives.filter((life) => life.start < to && (life.end ?? to) >= from).slice(-MAX_LIVES),
    [lives, from, to],
  );
  const left = (width: number) => (width < 500 ? 56 : 150);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      const edge = left(width);
      const room = width - edge - 16;
      const x = (time: number) =>
        edge + (room * (Math.min(to, Math.max(from, time)) - from)) / (to - from);
      context.font = `12px ${FONT}`;
      context.textBaseline = "middle";
      shown.forEach((life, index) => {
        const y = index * ROW;
        context.textAlign = "left";
        context.fillStyle = colour(index === picked ? "ink" : "muted");
        const name =
          width < 500 ? "" : `${fitted(context, format.groupName(life.group), edge - 60)} `;
        context.fillText(`${name}${life.pid}`, 0, y + ROW / 2);
        context.fillStyle = colour("teal", index === picked ? 1 : 0.75);
        const [begin, end] = [x(life.start), x(life.end ?? to)];
        context.beginPath();
        context.roundRect(begin, y + 4, Math.max(2, end - begin), ROW - 8, 3);
        context.fill();
        if (life.end !== null && life.end <= to) {
          drawEnd(context, life.ending ?? "planned", end, y);
        }
      });
      context.fillStyle = colour("muted");
      context.font = `11px ${FONT}`;
      context.textBaseline = "top";
      for (const part of [0, 0.5, 1]) {
        context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
        context.fillText(
          format.clock(from + (to - from) * part),
          edge + room * part,
          shown.length * ROW + 5,
        );
      }
    },
    [shown, from, to, picked],
  );
  const life = picked === null ? undefined : shown[picked];
  const end =
    life?.end == null
      ? "alive"
      : `ended ${format.moment(life.end)} after ${format.span(life.end - life.start)}${life.why ? `: ${life.why}` : ""}`;
  const described = life
    ? `${life.pid} (${format.groupName(life.group)} on ${life.host}): from ${format.moment(life.start)}, ${end}`
    : "";
  return (
    <Card
      title="Lifetimes of processes"
      note={shown.length < lives.length ? `${shown.length} of ${lives.length}` : undefined}
      legend={(Object.keys(HUES) as Ending[]).map((name) => ({
        label: `${SIGNS[name]} ${ENDINGS[name]}`,
        colour: colour(HUES[name]),
      }))}
      canvas={() => canvas.current}
      table={() => ({
        columns: ["Process", "Group", "Host", "From", "To", "Why"],
        rows: shown.map((each) => [
          String(each.pid),
          format.groupName(each.group),
          each.host,
          format.moment(each.start),
          each.end === null ? "alive" : format.moment(each.end),
          each.why,
        ]),
      })}
    >
      <dl class="legend">
        {(Object.keys(HUES) as Ending[]).map((name) => (
          <div key={name}>
            <dt>
              <EndSign ending={name} />
              {ENDINGS[name]}
            </dt>
          </div>
        ))}
      </dl>
      <Drawing
        height={Math.max(1, shown.length) * ROW + BOTTOM}
        label="Lifetimes of processes; arrow keys up and down move from one to the next, Table shows them"
        cursor={{
          at: picked ?? 0,
          last: shown.length - 1,
          text: described || "no process is picked",
        }}
        draw={draw}
        stale={stale}
        onPoint={(at: Point | null) => {
          const index = at ? Math.floor(at.y / ROW) : -1;
          setPicked(index >= 0 && index < shown.length ? index : null);
        }}
        onStep={(_, down) =>
          setPicked(Math.min(shown.length - 1, Math.max(0, (picked ?? -1) + down)))
        }
        onDrag={(start, end, width) => {
          const room = width - left(width) - 16;
          const time = (x: number) =>
            from + ((to - from) * Math.min(room, Math.max(0, x - left(width)))) / room;
          if (time(end) > time(start)) go({ range: { from: time(start), to: time(end) } });
        }}
        canvas={canvas}
      />
      <p class="readout">{described || <>&nbsp;</>}</p>
    </Card>
  );
}

function EndSign({ ending }: { ending: Ending }) {
  return (
    <span class={`sign-of-end ${HUES[ending]}`} aria-hidden="true">
      {SIGNS[ending]}
    </span>
  );
}

function drawEnd(context: CanvasRenderingContext2D, ending: Ending, x: number, y: number): void {
  const font = context.font;
  context.fillStyle = colour(HUES[ending]);
  context.font = `bold 15px ${FONT}`;
  context.textAlign = "left";
  context.fillText(SIGNS[ending], x + 1, y + ROW / 2);
  context.font = font;
}

function EventList({ events }: { events: Lifecycle[] }) {
  return (
    <section class="card" aria-labelledby="events">
      <header>
        <h3 id="events">
          Events <small>the latest first</small>
        </h3>
      </header>
      {events.length === 0 ? (
        <p class="note">No process started or ended in this range.</p>
      ) : (
        <div class="scroll">
          <table class="numbers">
            <thead>
              <tr>
                {[
                  "Time",
                  "Event",
                  "Process",
                  "Group",
                  "Why",
                  "Uptime",
                  "Requests",
                  "In flight",
                ].map((name, index) => (
                  <th key={name} scope="col" class={index < 5 ? "text" : ""}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {events.map((event) => (
                <tr key={`${event.host} ${event.pid} ${event.time} ${event.event}`}>
                  <th scope="row">{format.moment(event.time)}</th>
                  <td class="text">
                    {isEnd(event) && <EndSign ending={endingOf(event)} />}
                    {said(event)}
                  </td>
                  <td class="text">
                    {event.pid} <small>{event.host}</small>
                  </td>
                  <td class="text">{format.groupName(event.group)}</td>
                  <td class="text why">
                    {reasonOf(event)}
                    {event.reported_by_supervisor ? <small> reported by the supervisor</small> : ""}
                  </td>
                  <td>{isEnd(event) ? format.span(event.process_uptime) : ""}</td>
                  <td>{isEnd(event) ? format.count(event.lifetime_request_count) : ""}</td>
                  <td>
                    {isEnd(event)
                      ? format.count(
                          event.active_requests_at_exit ?? event.active_requests_at_decision,
                        )
                      : ""}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
