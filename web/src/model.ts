// The answers of /api/v1. Times are seconds since 1970; durations are seconds, sizes bytes, shares
// from 0 to 1.

import type { GcEvent, Lifecycle, SlowRequest } from "./events";
import type { Frame } from "./frames";

export interface Quantiles {
  count: number;
  mean: number;
  min: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
}

export type MaybeQuantiles = Quantiles | null;

export interface Summary {
  period: number;
  processes: number;
  requests: number;
  rps: number;
  rpm: number;
  errors_5xx: number;
  errors_4xx: number;
  failed: number;
  status: Record<string, number>;
  response: MaybeQuantiles;
  application: MaybeQuantiles;
  queue: MaybeQuantiles;
  server: MaybeQuantiles;
  daemon: MaybeQuantiles;
  input_read: MaybeQuantiles;
  output_write: MaybeQuantiles;
  gil_wait: MaybeQuantiles;
  gil_held: MaybeQuantiles;
  cpu_per_request: MaybeQuantiles;
  take_wait: MaybeQuantiles;
  hold: MaybeQuantiles;
  parked: MaybeQuantiles;
  loop_iteration: MaybeQuantiles;
  gil: GilShares | null;
  loops: LoopUse | null;
  cpu: number;
  cpu_user: number;
  cpu_system: number;
  cpu_per_process: number;
  rss: number;
  rss_per_process: number;
  busy: number | null;
  threads: number;
  input_bytes: number;
  output_bytes: number;
  connections_open: number;
  throttled: number | null;
  gc: { pauses: number; share: number; pause: MaybeQuantiles } | null;
  exact: boolean;
}

/** The names of a summary's distributions of requests and takes. */
export type Metric =
  | "response"
  | "application"
  | "queue"
  | "server"
  | "input_read"
  | "output_write"
  | "gil_wait"
  | "gil_held"
  | "cpu_per_request"
  | "take_wait"
  | "hold"
  | "parked"
  | "loop_iteration";

export interface GilShares {
  held: number;
  handoff: number;
  idle: number;
  takes: number;
  contended_takes: number;
  forced_drops: number;
  preemptions: number;
}

/** The event loops: rates per second, and shares of their time, in iterations and in waits. */
export interface LoopUse {
  iterations: number;
  late: number;
  busy: number;
  computed: number;
  waited: number;
  blocked: number;
  late_computed: number;
  late_waited: number;
  late_blocked: number;
  /** From which duration on an iteration is late. */
  late_limit: number;
  /** The longest iteration that has not ended; 0 without one. */
  iterating: number;
}

/** A value, or the different values of the selected processes. */
export type Varying<T> = T | T[] | null;

export interface Config {
  processes: Varying<number>;
  threads: Varying<number>;
  switch_interval: Varying<number>;
  policy: Varying<string>;
  gil_mode: Varying<string>;
  python: Varying<string>;
  server: Varying<string>;
  cores: Varying<number>;
  cpu_limit: Varying<number>;
  memory_limit: Varying<number>;
  timeouts: Record<string, Varying<number>>;
}

export type Severity = "ok" | "note" | "warning" | "critical";

export interface Verdict {
  name: string;
  severity: Severity;
  title: string;
  text: string;
  evidence: { text: string; value: number | string | null; unit: string; limit?: number | null }[];
  advice: { try: string; expect: string }[];
  sample: { seconds: number; requests: number };
}

export interface Measured {
  summary: Summary;
  config: Config;
  verdict: Verdict;
}

/** Whether the selection serves requests; a program under `headway run` does not. */
export function serves({ summary, config }: Pick<Measured, "summary" | "config">): boolean {
  return config.threads !== null || summary.requests > 0;
}

export interface ProcessName {
  host: string;
  pid: number;
}

export interface Group extends Measured {
  host: string;
  group: string;
}

export interface Process extends Measured, ProcessName {
  started: number;
  group: string;
  kind: string;
  alive: boolean;
  last_seen: number;
}

export type Health = Record<string, unknown>;

export interface Now {
  time: number;
  recorder: Health;
  total: Measured;
  groups: Group[];
  processes: Process[];
}

export interface Series {
  from: number;
  to: number;
  step: number;
  switch_intervals: number[];
  /** `setting` is the switch interval and the policy, as "5 ms, priority". */
  points: { time: number; summary: Summary | null; setting: string | null }[];
  markers: Lifecycle[];
}

export interface Histogram {
  count: number;
  sum: number;
  min: number | null;
  max: number | null;
  p50: number | null;
  p90: number | null;
  p95: number | null;
  p99: number | null;
  p999: number | null;
  /** Upper bound in seconds and count; empty buckets are left out. */
  buckets: [number, number][];
}

export interface Distribution {
  histogram: Histogram | null;
  switch_intervals: number[];
}

export interface Slots {
  times: number[];
  processes: (ProcessName & {
    group?: string;
    /** By time, each worker thread's share in requests; null if the process did not report. */
    busy: (number[] | null)[];
  })[];
}

export interface Events<T> {
  events: T[];
}

export type SlowAnswer = Events<SlowRequest>;
export type LifecycleAnswer = Events<Lifecycle>;
export type GcAnswer = Events<GcEvent>;

export interface Comparison {
  rows: (Measured & { name: string })[];
}

export interface ErrorAnswer {
  error: string;
}

export interface GilRow {
  name: string;
  host?: string;
  pid?: number;
  wall?: number;
  held: number;
  handoff: number;
  idle: number;
  takes: number;
  contended_takes: number;
  voluntary_drops: number;
  forced_drops: number;
  drop_requests: number;
  preemptions: number;
  threads: number;
  switch_interval: number;
  wait: MaybeQuantiles;
  hold: MaybeQuantiles;
}

export interface ThreadRow {
  name: string;
  host?: string;
  pid?: number;
  native_id?: number;
  gil: string;
  held: number;
  waited: number;
  forced_waited: number;
  takes: number;
  contended_takes: number;
  forced_drops: number;
  preemptions: number;
}

export interface Endpoint {
  name: string;
  is_route: boolean | number;
  application_group?: string;
  requests: number;
  errors: number;
  response: MaybeQuantiles;
  gil_wait: MaybeQuantiles;
  gil_held: number;
  application: number;
  cpu: number;
}

export interface InterpreterRow {
  name: string;
  requests: number;
  errors: number;
  application: number;
  gil_wait: number;
  gil_held: number;
  own_gil: boolean | number;
}

export interface Hold extends ProcessName {
  time: number;
  stamp: number;
  started: number;
  group: string;
  duration: number;
  thread: string;
  native_id: number;
  gil: string;
  waited: number;
  cpu?: number;
  /** The hold had not ended when it was reported last. */
  present?: number;
  stack: string;
  endpoint: string;
}

/** The time that threads waited while others executed a line. A row without a file has no line. */
export interface LineRow extends Frame {
  endpoint: string;
  waited: number;
}

/** The time for which event loops were late while a line ran. A row without a file has no line. */
export interface LateLine extends Frame {
  /** What the loop ran; "" if it is not known. */
  callback: string;
  /** The thread that held the GIL, where the loop waited for it. */
  holder: string;
  /** What the loop did: computed, waited or blocked; "" for others. */
  part: string;
  late: number;
}

export interface Holders {
  /** The length of the range. */
  seconds: number;
  gils: GilRow[];
  threads: ThreadRow[];
  endpoints: Endpoint[];
  interpreters: InterpreterRow[];
  lines: LineRow[];
  late_lines: LateLine[];
  holds: Hold[];
}

/** A call of a flame graph; its caller comes before it. */
export interface CallRow extends Frame {
  /** The index of the caller; null for the outermost call. */
  caller: number | null;
  waited: number;
  self: number;
  /** Callees that are too small for a call of their own, and what is waited in them. */
  small: number;
  small_waited: number;
}

/** The calls during which other threads waited. */
export interface Flame {
  seconds: number;
  /** Whether the processes report callers of lines. */
  has_stacks: boolean;
  endpoints: { name: string; waited: number }[];
  calls: CallRow[];
}
