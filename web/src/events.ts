// Events as the recorder keeps them: the process, the time, and the fields of the event's datagram
// under the wire format's own names. A field that the sender left out is absent.

import type { ProcessName } from "./model";

interface Event extends ProcessName {
  time: number;
  started: number;
  group: string;
  hostname?: string;
  process_group?: string;
  process_started_stamp?: number;
}

export interface Lifecycle extends Event {
  event: "process_started" | "process_stopping" | "process_stopped";
  process_parent_pid?: number;
  shutdown_reason?: string;
  shutdown_detail?: string;
  death?: string;
  process_uptime?: number;
  lifetime_request_count?: number;
  active_requests_at_decision?: number;
  active_requests_at_exit?: number;
  graceful_drain?: number;
  reported_by_supervisor?: number;
}

export interface SlowRequest extends Event {
  slow_record_state?: number;
  slow_start_stamp?: number;
  slow_duration?: number;
  slow_log_id?: string;
  slow_thread_id?: number;
  slow_method?: string;
  slow_scheme?: string;
  slow_hostname?: string;
  slow_script_name?: string;
  slow_path_info?: string;
  slow_protocol?: string;
  slow_peer_ip?: string;
  slow_user_agent?: string;
  slow_server_time?: number;
  slow_queue_time?: number;
  slow_daemon_time?: number;
  slow_application_time?: number;
  slow_gil_wait_time?: number;
  slow_gil_wait_count?: number;
  slow_gil_held_time?: number;
  slow_input_bytes?: number;
  slow_output_bytes?: number;
  slow_input_read_time?: number;
  slow_output_write_time?: number;
  slow_status?: number;
  slow_cpu_user_time?: number;
  slow_cpu_system_time?: number;
  slow_active_at_start?: number;
  slow_active_at_completion?: number;
  slow_stack?: string;
  slow_endpoint?: string;
  slow_interpreter?: string;
}

export interface GcEvent extends Event {
  event: "gc_snapshot" | "gc_event";
  interpreter_name?: string;
  gc_event_start_stamp?: number;
  gc_event_duration?: number;
  gc_event_generation?: number;
  gc_event_collected?: number;
  gc_event_uncollectable?: number;
}

/** Reasons that are configured or requested. Other reasons are unplanned, or limits. */
const PLANNED = new Set([
  "restart_interval",
  "maximum_requests",
  "inactivity_timeout",
  "script_reload",
  "shutdown_signal",
  "graceful_signal",
]);
const UNPLANNED = new Set(["crash", "deadlock_timeout", "signal_pipe_error", "unknown"]);

export type Ending = "planned" | "limit" | "unplanned";

export function endingOf(event: Lifecycle): Ending {
  const reason = event.shutdown_reason ?? "";
  if (event.death || UNPLANNED.has(reason)) return "unplanned";
  return PLANNED.has(reason) || reason === "" ? "planned" : "limit";
}

export function isEnd(event: Lifecycle): boolean {
  return event.event !== "process_started";
}

const SAID: Record<Lifecycle["event"], string> = {
  process_started: "started",
  process_stopping: "stopping",
  process_stopped: "stopped",
};

export function said({ event }: Lifecycle): string {
  return SAID[event] ?? event;
}

/** The reason of an end in words. */
export function reasonOf(event: Lifecycle): string {
  return [event.death, event.shutdown_reason?.replaceAll("_", " "), event.shutdown_detail]
    .filter(Boolean)
    .join("; ");
}

/** The URL of a slow request, without the query, which is never sent. */
export function urlOf(event: SlowRequest): string {
  return `${event.slow_script_name ?? ""}${event.slow_path_info ?? ""}` || "/";
}

export function isActive(event: SlowRequest): boolean {
  return event.slow_record_state === 0;
}
