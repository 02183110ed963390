// Requests that took longer than --slow-requests: where their time went, and the Python stack that
// was running when the clock ran out.

import { look } from "../address";
import { useAnswer } from "../answers";
import { isActive, type SlowRequest, urlOf } from "../events";
import * as format from "../format";
import type { SlowAnswer } from "../model";
import { refreshSeconds } from "../range";
import type { Colour } from "../theme";
import { Trouble, Waiting } from "../trouble";
import { Filter } from "./filter";
import { asked, type PageProps } from "./props";

const LIMIT = 200;
const STATES = ["all", "running", "done"] as const;

export function SlowPage({ address }: PageProps) {
  const every = refreshSeconds(address.range);
  const answer = useAnswer<SlowAnswer>(
    "slow",
    [...asked(address), ["limit", String(LIMIT)]],
    every && Math.max(2, every),
  );
  if (!answer.data) return <Waiting answer={answer} />;
  const state = STATES.find((name) => name === address.view.state) ?? "all";
  const wanted = (address.view.q ?? "").toLowerCase();
  const { events } = answer.data;
  const shown = events
    .filter((event) => state === "all" || isActive(event) === (state === "running"))
    .filter((event) => wordsOf(event).includes(wanted));
  return (
    <>
      <Trouble answers={[answer]} />
      <div class="bar">
        <Filter value={address.view.q ?? ""} label="Contains" />
        <label class="inline">
          State{" "}
          <select value={state} onChange={(event) => look("state", event.currentTarget.value)}>
            {STATES.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <span class="note">
          {format.count(shown.length)} of {format.counted(events.length, "request")}
          {events.length >= LIMIT ? ", the latest" : ""}
        </span>
      </div>
      <section class={`card ${answer.stale ? "stale" : ""}`} aria-label="Slow requests">
        {shown.length === 0 ? (
          <p class="note">
            {events.length
              ? "No slow request matches the filter."
              : "No request was slow in this range. headway serve --slow-requests S sets the limit."}
          </p>
        ) : (
          <ul class="slow">
            {shown.map((event) => (
              <Slow
                key={`${event.host} ${event.pid} ${event.time} ${event.slow_thread_id}`}
                event={event}
              />
            ))}
          </ul>
        )}
      </section>
    </>
  );
}

function wordsOf(event: SlowRequest): string {
  return [
    event.slow_method,
    urlOf(event),
    event.slow_endpoint,
    event.slow_log_id,
    event.slow_peer_ip,
    event.pid,
  ]
    .join(" ")
    .toLowerCase();
}

function Slow({ event }: { event: SlowRequest }) {
  return (
    <li>
      <details>
        <summary>
          <strong class="duration">{format.seconds(event.slow_duration)}</strong>
          <span class={`state ${isActive(event) ? "running" : ""}`}>
            {isActive(event) ? "running" : (event.slow_status ?? "done")}
          </span>
          <span class="url">
            {event.slow_method ?? ""} {urlOf(event)}
          </span>
          <small>{format.moment(event.time)}</small>
        </summary>
        <Phases event={event} />
        <Detail event={event} />
        <h4>Python stack</h4>
        <pre>{event.slow_stack || "No stack was taken."}</pre>
      </details>
    </li>
  );
}

/** Where the time of a request went, one after the other. */
function Phases({ event }: { event: SlowRequest }) {
  const application = event.slow_application_time ?? 0;
  const waited = Math.min(application, event.slow_gil_wait_time ?? 0);
  const held = Math.min(application - waited, event.slow_gil_held_time ?? 0);
  const parts: [string, number, Colour][] = [
    ["server", event.slow_server_time ?? 0, "grey"],
    ["queue", event.slow_queue_time ?? 0, "blue"],
    ["waiting for the GIL", waited, "amber"],
    ["holding the GIL", held, "teal"],
    ["application without the GIL", application - waited - held, "violet"],
  ];
  const whole = parts.reduce((sum, [, time]) => sum + time, 0);
  if (!whole) return null;
  return (
    <div class="phases">
      <div class="strip" aria-hidden="true">
        {parts
          .filter(([, time]) => time > 0)
          .map(([name, time, hue]) => (
            <i key={name} class={hue} style={{ flexGrow: time / whole }} />
          ))}
      </div>
      <dl class="legend">
        {parts
          .filter(([, time]) => time > 0)
          .map(([name, time, hue]) => (
            <div key={name}>
              <dt>
                <i class={`swatch ${hue}`} />
                {name}
              </dt>
              <dd>{format.seconds(time)}</dd>
            </div>
          ))}
      </dl>
    </div>
  );
}

function Detail({ event }: { event: SlowRequest }) {
  const cpu = (event.slow_cpu_user_time ?? 0) + (event.slow_cpu_system_time ?? 0);
  const lines: [string, string | number | undefined][] = [
    ["Endpoint", event.slow_endpoint],
    ["Host", event.slow_hostname],
    ["Client", event.slow_peer_ip],
    ["Log id", event.slow_log_id],
    ["Process", `${event.pid} on ${event.host}`],
    ["Interpreter", event.slow_interpreter],
    ["CPU", cpu ? format.seconds(cpu) : undefined],
    ["GIL waits", event.slow_gil_wait_count],
    ["Read", event.slow_input_bytes ? format.bytes(event.slow_input_bytes) : undefined],
    ["Written", event.slow_output_bytes ? format.bytes(event.slow_output_bytes) : undefined],
    ["In flight at its start", event.slow_active_at_start],
    ["at its end", event.slow_active_at_completion],
    ["User agent", event.slow_user_agent],
  ];
  return (
    <dl class="detail">
      {lines
        .filter(([, value]) => value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
