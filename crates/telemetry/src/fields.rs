//! The table of fields: number, name, type, and how it adds up in records.
//!
//! Numbers below 1000 are mod_wsgi's (`wsgi_telemetry.h`; names as in mod-wsgi-telemetry's
//! `wire.py`). mod_wsgi's own viewer ignores fields that it does not know.

/// The type of a value. Times are seconds on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Count,
    Integer,
    Seconds,
    /// Cores, shares, bytes times seconds, or moments in seconds since 1970.
    Number,
    Text,
    Counts,
    SecondsList,
    Histogram,
    Row,
    /// A type of records only.
    Slots,
}

/// The form of a field in a record, and how the values of two records add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The field is in no record: other fields are computed from it, or it is not needed later.
    No,
    Sum,
    Max,
    /// All different values, `merge::MAX_DISTINCT` at most.
    Distinct,
    /// Rows with the same keys become one row.
    ByKey,
    /// Part of its row's key.
    Key,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub id: u16,
    pub name: &'static str,
    pub kind: Type,
    pub kept: Kept,
}

impl Field {
    /// Returns whether the field describes the process that sends a tick, or its reports, and not
    /// what it did in the interval.
    pub fn is_of_sender(&self) -> bool {
        self.kept == Kept::Distinct
            || matches!(
                self.id,
                id::PROCESS_PARENT_PID
                    | id::SAMPLE_PERIOD
                    | id::PROCESS_STARTED_STAMP
                    | id::TICKS_UNSENT
                    | id::RECORDS_LOST
                    | id::REPORTED_BY_SUPERVISOR
            )
    }
}

/// The kind of a datagram, with mod_wsgi's numbers. No others are sent, because its viewer takes a
/// datagram of an unknown kind for a tick.
pub mod kind {
    pub const REQUEST_METRICS: u8 = 2;
    pub const SLOW_REQUEST: u8 = 4;
    pub const PROCESS_STARTED: u8 = 5;
    pub const PROCESS_STOPPING: u8 = 6;
    pub const PROCESS_STOPPED: u8 = 7;
    pub const GC_SNAPSHOT: u8 = 8;
    pub const GC_EVENT: u8 = 9;
}

macro_rules! fields {
    ($($number:literal $constant:ident $name:literal $type:ident $kept:ident,)*) => {
        /// The fields' numbers.
        pub mod id {
            $(pub const $constant: u16 = $number;)*
        }

        /// By number.
        pub const FIELDS: &[Field] = &[
            $(Field { id: $number, name: $name, kind: Type::$type, kept: Kept::$kept },)*
        ];
    };
}

fields! {
    // The sender.
    1 MOD_WSGI_VERSION "mod_wsgi_version" Text Distinct,
    2 PYTHON_VERSION "python_version" Text Distinct,
    3 APACHE_VERSION "apache_version" Text Distinct,
    4 MPM_NAME "mpm_name" Text Distinct,
    5 HOSTNAME "hostname" Text Distinct,
    6 PROCESS_GROUP "process_group" Text Distinct,
    7 PROCESS_PARENT_PID "process_parent_pid" Count No,
    8 INTERPRETER_NAME "interpreter_name" Text No,
    // The interval and the settings. A tick's sample period becomes process_seconds.
    10 SAMPLE_PERIOD "sample_period" Seconds No,
    11 TELEMETRY_INTERVAL "telemetry_interval" Seconds Distinct,
    12 SLOW_REQUESTS_THRESHOLD "slow_requests_threshold" Seconds Distinct,
    13 SWITCH_INTERVAL "switch_interval" Seconds Distinct,
    // Requests. The rates of an interval become sums over time, further down.
    20 REQUEST_COUNT "request_count" Count Sum,
    21 REQUEST_THROUGHPUT "request_throughput" Number No,
    22 CAPACITY_UTILIZATION "capacity_utilization" Number No,
    30 CPU_USER_UTILIZATION "cpu_user_utilization" Number No,
    31 CPU_SYSTEM_UTILIZATION "cpu_system_utilization" Number No,
    32 CPU_UTILIZATION "cpu_utilization" Number No,
    35 CPU_USER_TIME "cpu_user_time" Seconds No,
    36 CPU_SYSTEM_TIME "cpu_system_time" Seconds No,
    37 CPU_TIME "cpu_time" Seconds No,
    40 MEMORY_RSS "memory_rss" Count No,
    41 MEMORY_MAX_RSS "memory_max_rss" Count Max,
    50 REQUEST_THREADS_MAXIMUM "request_threads_maximum" Count Distinct,
    51 REQUEST_THREADS_STARTED "request_threads_started" Count No,
    52 REQUEST_THREADS_ACTIVE "request_threads_active" Count No,
    // Each phase's mean, extremes and mod_wsgi's histogram (4 steps to each power of two of a
    // millisecond) become one of our histograms, unless the sender has that already.
    60 SERVER_TIME "server_time" Seconds No,
    61 QUEUE_TIME "queue_time" Seconds No,
    62 DAEMON_TIME "daemon_time" Seconds No,
    63 APPLICATION_TIME "application_time" Seconds No,
    64 REQUEST_TIME "request_time" Seconds No,
    65 GIL_WAIT_TIME "gil_wait_time" Seconds No,
    66 INPUT_READ_TIME "input_read_time" Seconds No,
    67 OUTPUT_WRITE_TIME "output_write_time" Seconds No,
    70 SERVER_TIME_MIN "server_time_min" Seconds No,
    71 QUEUE_TIME_MIN "queue_time_min" Seconds No,
    72 DAEMON_TIME_MIN "daemon_time_min" Seconds No,
    73 APPLICATION_TIME_MIN "application_time_min" Seconds No,
    74 REQUEST_TIME_MIN "request_time_min" Seconds No,
    75 GIL_WAIT_TIME_MIN "gil_wait_time_min" Seconds No,
    76 INPUT_READ_TIME_MIN "input_read_time_min" Seconds No,
    77 OUTPUT_WRITE_TIME_MIN "output_write_time_min" Seconds No,
    80 SERVER_TIME_MAX "server_time_max" Seconds No,
    81 QUEUE_TIME_MAX "queue_time_max" Seconds No,
    82 DAEMON_TIME_MAX "daemon_time_max" Seconds No,
    83 APPLICATION_TIME_MAX "application_time_max" Seconds No,
    84 REQUEST_TIME_MAX "request_time_max" Seconds No,
    85 GIL_WAIT_TIME_MAX "gil_wait_time_max" Seconds No,
    86 INPUT_READ_TIME_MAX "input_read_time_max" Seconds No,
    87 OUTPUT_WRITE_TIME_MAX "output_write_time_max" Seconds No,
    90 SERVER_TIME_BUCKETS "server_time_buckets" Counts No,
    91 QUEUE_TIME_BUCKETS "queue_time_buckets" Counts No,
    92 DAEMON_TIME_BUCKETS "daemon_time_buckets" Counts No,
    93 APPLICATION_TIME_BUCKETS "application_time_buckets" Counts No,
    94 REQUEST_TIME_BUCKETS "request_time_buckets" Counts No,
    95 GIL_WAIT_TIME_BUCKETS "gil_wait_time_buckets" Counts No,
    96 INPUT_READ_TIME_BUCKETS "input_read_time_buckets" Counts No,
    97 OUTPUT_WRITE_TIME_BUCKETS "output_write_time_buckets" Counts No,
    100 INPUT_BYTES_TOTAL "input_bytes_total" Count Sum,
    101 INPUT_READS_TOTAL "input_reads_total" Count Sum,
    102 OUTPUT_BYTES_TOTAL "output_bytes_total" Count Sum,
    103 OUTPUT_WRITES_TOTAL "output_writes_total" Count Sum,
    // One item for each worker thread; they become slots.
    110 REQUEST_THREADS_COMPLETED "request_threads_completed" Counts No,
    111 REQUEST_THREADS_BUSY_TIME "request_threads_busy_time" SecondsList No,
    112 REQUEST_THREADS_CPU_TIME "request_threads_cpu_time" SecondsList No,
    113 REQUEST_THREADS_CURRENT_ELAPSED "request_threads_current_elapsed" SecondsList No,
    114 REQUEST_THREADS_MAX_DURATION "request_threads_max_duration" SecondsList No,
    120 STATUS_1XX_TOTAL "status_1xx_total" Count Sum,
    121 STATUS_2XX_TOTAL "status_2xx_total" Count Sum,
    122 STATUS_3XX_TOTAL "status_3xx_total" Count Sum,
    123 STATUS_4XX_TOTAL "status_4xx_total" Count Sum,
    124 STATUS_5XX_TOTAL "status_5xx_total" Count Sum,
    // Lifecycle.
    130 SHUTDOWN_REASON "shutdown_reason" Text No,
    131 PROCESS_UPTIME "process_uptime" Seconds No,
    132 LIFETIME_REQUEST_COUNT "lifetime_request_count" Count No,
    133 ACTIVE_REQUESTS_AT_DECISION "active_requests_at_decision" Count No,
    134 ACTIVE_REQUESTS_AT_EXIT "active_requests_at_exit" Count No,
    135 GRACEFUL_DRAIN "graceful_drain" Count No,
    // Slow requests.
    200 SLOW_RECORD_STATE "slow_record_state" Count No,
    201 SLOW_START_STAMP "slow_start_stamp" Number No,
    202 SLOW_DURATION "slow_duration" Seconds No,
    203 SLOW_THREAD_ID "slow_thread_id" Count No,
    204 SLOW_LOG_ID "slow_log_id" Text No,
    205 SLOW_SERVER_PID "slow_server_pid" Count No,
    210 SLOW_METHOD "slow_method" Text No,
    211 SLOW_SCHEME "slow_scheme" Text No,
    212 SLOW_HOSTNAME "slow_hostname" Text No,
    213 SLOW_SCRIPT_NAME "slow_script_name" Text No,
    214 SLOW_PATH_INFO "slow_path_info" Text No,
    215 SLOW_PROTOCOL "slow_protocol" Text No,
    216 SLOW_PEER_IP "slow_peer_ip" Text No,
    217 SLOW_USER_AGENT "slow_user_agent" Text No,
    220 SLOW_SERVER_TIME "slow_server_time" Seconds No,
    221 SLOW_QUEUE_TIME "slow_queue_time" Seconds No,
    222 SLOW_DAEMON_TIME "slow_daemon_time" Seconds No,
    223 SLOW_APPLICATION_TIME "slow_application_time" Seconds No,
    224 SLOW_GIL_WAIT_TIME "slow_gil_wait_time" Seconds No,
    225 SLOW_GIL_WAIT_COUNT "slow_gil_wait_count" Count No,
    230 SLOW_INPUT_BYTES "slow_input_bytes" Count No,
    231 SLOW_INPUT_READS "slow_input_reads" Count No,
    232 SLOW_OUTPUT_BYTES "slow_output_bytes" Count No,
    233 SLOW_OUTPUT_WRITES "slow_output_writes" Count No,
    234 SLOW_INPUT_READ_TIME "slow_input_read_time" Seconds No,
    235 SLOW_OUTPUT_WRITE_TIME "slow_output_write_time" Seconds No,
    240 SLOW_STATUS "slow_status" Count No,
    250 SLOW_CPU_USER_TIME "slow_cpu_user_time" Seconds No,
    251 SLOW_CPU_SYSTEM_TIME "slow_cpu_system_time" Seconds No,
    260 SLOW_ACTIVE_AT_START "slow_active_at_start" Count No,
    261 SLOW_ACTIVE_AT_COMPLETION "slow_active_at_completion" Count No,
    // Garbage collection.
    300 GC_COUNT0 "gc_count0" Count No,
    301 GC_COUNT1 "gc_count1" Count No,
    302 GC_COUNT2 "gc_count2" Count No,
    303 GC_THRESHOLD0 "gc_threshold0" Count No,
    304 GC_THRESHOLD1 "gc_threshold1" Count No,
    305 GC_THRESHOLD2 "gc_threshold2" Count No,
    306 GC_COLLECTIONS0 "gc_collections0" Count No,
    307 GC_COLLECTIONS1 "gc_collections1" Count No,
    308 GC_COLLECTIONS2 "gc_collections2" Count No,
    309 GC_COLLECTED0 "gc_collected0" Count No,
    310 GC_COLLECTED1 "gc_collected1" Count No,
    311 GC_COLLECTED2 "gc_collected2" Count No,
    312 GC_UNCOLLECTABLE0 "gc_uncollectable0" Count No,
    313 GC_UNCOLLECTABLE1 "gc_uncollectable1" Count No,
    314 GC_UNCOLLECTABLE2 "gc_uncollectable2" Count No,
    315 GC_IS_ENABLED "gc_is_enabled" Count No,
    316 GC_FREEZE_COUNT "gc_freeze_count" Count No,
    317 GC_DROPPED_EVENTS "gc_dropped_events" Count No,
    320 GC_EVENT_START_STAMP "gc_event_start_stamp" Number No,
    321 GC_EVENT_DURATION "gc_event_duration" Seconds No,
    322 GC_EVENT_GENERATION "gc_event_generation" Count No,
    323 GC_EVENT_COLLECTED "gc_event_collected" Count No,
    324 GC_EVENT_UNCOLLECTABLE "gc_event_uncollectable" Count No,
    // From here on Headway's own.
    1000 HEADWAY_VERSION "headway_version" Text Distinct,
    1001 GIL_MODE "gil_mode" Text Distinct,
    1002 POLICY "policy" Text Distinct,
    1003 PROCESS_KIND "process_kind" Text Distinct,
    1004 CPU_CORES "cpu_cores" Number Distinct,
    1005 CGROUP_CPU_LIMIT "cgroup_cpu_limit" Number Distinct,
    1006 CGROUP_MEMORY_LIMIT "cgroup_memory_limit" Count Distinct,
    1007 CGROUP_THROTTLED_TIME "cgroup_throttled_time" Seconds Sum,
    1008 CGROUP_THROTTLED_PERIODS "cgroup_throttled_periods" Count Sum,
    1009 CGROUP_PERIODS "cgroup_periods" Count Sum,
    1010 PROCESS_STARTED_STAMP "process_started_stamp" Number No,
    1011 KERNEL_HINTS "kernel_hints" Count Distinct,
    1012 TICKS_UNSENT "ticks_unsent" Count Max,
    1013 RECORDS_LOST "records_lost" Count Max,
    1014 ROWS_FOLDED "rows_folded" Count Max,
    1015 UNMEASURED_EVENTS "unmeasured_events" Count Max,
    1016 LIFETIME_REQUESTS "lifetime_requests" Count Max,
    1017 PROCESS_NAME "process_name" Text Distinct,
    // The CPU time that all programs used on the cores that the process may use.
    1018 CORES_BUSY "cores_busy" Seconds Sum,
    1020 REQUEST_TIMEOUT "request_timeout" Seconds Distinct,
    1021 INTERRUPT_TIMEOUT "interrupt_timeout" Seconds Distinct,
    1022 QUEUE_TIMEOUT "queue_timeout" Seconds Distinct,
    1023 GRACEFUL_TIMEOUT "graceful_timeout" Seconds Distinct,
    1024 SHUTDOWN_TIMEOUT "shutdown_timeout" Seconds Distinct,
    1025 DEADLOCK_TIMEOUT "deadlock_timeout" Seconds Distinct,
    1026 INACTIVITY_TIMEOUT "inactivity_timeout" Seconds Distinct,
    1027 RESTART_INTERVAL "restart_interval" Seconds Distinct,
    1028 MAXIMUM_REQUESTS "maximum_requests" Count Distinct,
    1029 STARTUP_TIMEOUT "startup_timeout" Seconds Distinct,
    1040 SERVER_TIME_HISTOGRAM "server_time_histogram" Histogram Sum,
    1041 QUEUE_TIME_HISTOGRAM "queue_time_histogram" Histogram Sum,
    1042 DAEMON_TIME_HISTOGRAM "daemon_time_histogram" Histogram Sum,
    1043 APPLICATION_TIME_HISTOGRAM "application_time_histogram" Histogram Sum,
    1044 REQUEST_TIME_HISTOGRAM "request_time_histogram" Histogram Sum,
    1045 GIL_WAIT_TIME_HISTOGRAM "gil_wait_time_histogram" Histogram Sum,
    1046 INPUT_READ_TIME_HISTOGRAM "input_read_time_histogram" Histogram Sum,
    1047 OUTPUT_WRITE_TIME_HISTOGRAM "output_write_time_histogram" Histogram Sum,
    1048 GIL_HELD_TIME_HISTOGRAM "gil_held_time_histogram" Histogram Sum,
    1049 REQUEST_CPU_TIME_HISTOGRAM "request_cpu_time_histogram" Histogram Sum,
    1050 REQUESTS_FAILED "requests_failed" Count Sum,
    1051 CONNECTIONS_OPEN "connections_open" Count No,
    1052 CONNECTIONS_ACCEPTED "connections_accepted" Count Sum,
    // The waits of all threads of a free-threaded build for locks and events.
    1053 PARKED_TIME_HISTOGRAM "parked_time_histogram" Histogram Sum,
    // Threads with event loops that found no room in the counters.
    1054 UNMEASURED_LOOPS "unmeasured_loops" Count Max,
    // In records only: the values of a tick for its interval, times its length, so that they add up
    // over time and processes.
    1060 PROCESS_SECONDS "process_seconds" Seconds Sum,
    1061 CPU_USER_SECONDS "cpu_user_seconds" Seconds Sum,
    1062 CPU_SYSTEM_SECONDS "cpu_system_seconds" Seconds Sum,
    1063 RSS_BYTE_SECONDS "rss_byte_seconds" Number Sum,
    1064 THREAD_SECONDS "thread_seconds" Seconds Sum,
    1065 BUSY_SECONDS "busy_seconds" Seconds Sum,
    1066 CONNECTION_SECONDS "connection_seconds" Seconds Sum,
    1067 TICKS "ticks" Count Sum,
    1068 COARSE_TICKS "coarse_ticks" Count Sum,
    1069 SLOTS "slots" Slots Sum,
    // A GIL.
    1100 GILS "gils" Row ByKey,
    1101 GIL_NAME "gil_name" Text Key,
    1102 GIL_INTERPRETER "gil_interpreter" Integer No,
    1103 GIL_WALL "gil_wall" Seconds Sum,
    1104 GIL_HELD "gil_held" Seconds Sum,
    1105 GIL_HANDOFF "gil_handoff" Seconds Sum,
    1106 GIL_IDLE "gil_idle" Seconds Sum,
    1107 GIL_TAKES "gil_takes" Count Sum,
    1108 GIL_CONTENDED_TAKES "gil_contended_takes" Count Sum,
    1109 GIL_VOLUNTARY_DROPS "gil_voluntary_drops" Count Sum,
    1110 GIL_FORCED_DROPS "gil_forced_drops" Count Sum,
    1111 GIL_DROP_REQUESTS "gil_drop_requests" Count Sum,
    1112 GIL_PREEMPTIONS "gil_preemptions" Count Sum,
    1113 GIL_WAIT "gil_wait" Histogram Sum,
    1114 GIL_HOLD "gil_hold" Histogram Sum,
    1115 GIL_THREADS "gil_threads" Count Max,
    1116 GIL_SWITCH_INTERVAL "gil_switch_interval" Seconds Distinct,
    // A thread on a GIL.
    1120 THREADS "threads" Row ByKey,
    1121 THREAD_NAME "thread_name" Text Key,
    1122 THREAD_NATIVE_ID "thread_native_id" Count No,
    1123 THREAD_GIL "thread_gil" Text Key,
    1124 THREAD_HELD "thread_held" Seconds Sum,
    1125 THREAD_WAITED "thread_waited" Seconds Sum,
    1126 THREAD_TAKES "thread_takes" Count Sum,
    1127 THREAD_CONTENDED_TAKES "thread_contended_takes" Count Sum,
    1128 THREAD_FORCED_DROPS "thread_forced_drops" Count Sum,
    1129 THREAD_PREEMPTIONS "thread_preemptions" Count Sum,
    1130 THREAD_FORCED_WAITED "thread_forced_waited" Seconds Sum,
    1131 THREAD_PARKED "thread_parked" Seconds Sum,
    1132 THREAD_SUSPENDED "thread_suspended" Seconds Sum,
    1133 THREAD_STOPPING "thread_stopping" Seconds Sum,
    1134 THREAD_PREVENTABLE "thread_preventable" Seconds Sum,
    1135 THREAD_UNANSWERED "thread_unanswered" Seconds Sum,
    1136 THREAD_COLLECTION "thread_collection" Seconds Sum,
    1137 THREAD_OFF_CORE "thread_off_core" Seconds Sum,
    // An endpoint: a route or the beginning of a path.
    1140 ENDPOINTS "endpoints" Row ByKey,
    1141 ENDPOINT_NAME "endpoint_name" Text Key,
    1142 ENDPOINT_IS_ROUTE "endpoint_is_route" Count Max,
    1143 ENDPOINT_REQUESTS "endpoint_requests" Count Sum,
    1144 ENDPOINT_ERRORS "endpoint_errors" Count Sum,
    1145 ENDPOINT_RESPONSE "endpoint_response" Histogram Sum,
    1146 ENDPOINT_GIL_WAIT "endpoint_gil_wait" Histogram Sum,
    1147 ENDPOINT_GIL_HELD "endpoint_gil_held" Seconds Sum,
    1148 ENDPOINT_APPLICATION "endpoint_application" Seconds Sum,
    1149 ENDPOINT_CPU "endpoint_cpu" Seconds Sum,
    1150 ENDPOINT_APPLICATION_GROUP "endpoint_application_group" Text Key,
    // An interpreter that applications run in.
    1160 INTERPRETERS "interpreters" Row ByKey,
    1161 INTERPRETER_ROW_NAME "interpreter_row_name" Text Key,
    1162 INTERPRETER_REQUESTS "interpreter_requests" Count Sum,
    1163 INTERPRETER_ERRORS "interpreter_errors" Count Sum,
    1164 INTERPRETER_APPLICATION "interpreter_application" Seconds Sum,
    1165 INTERPRETER_GIL_WAIT "interpreter_gil_wait" Seconds Sum,
    1166 INTERPRETER_GIL_HELD "interpreter_gil_held" Seconds Sum,
    1167 INTERPRETER_OWN_GIL "interpreter_own_gil" Count Max,
    // A long hold of a GIL: an event, in no record.
    1180 HOLDS "holds" Row No,
    1181 HOLD_STAMP "hold_stamp" Number No,
    1182 HOLD_DURATION "hold_duration" Seconds No,
    1183 HOLD_THREAD "hold_thread" Text No,
    1184 HOLD_NATIVE_ID "hold_native_id" Count No,
    1185 HOLD_GIL "hold_gil" Text No,
    1186 HOLD_WAITED "hold_waited" Seconds No,
    1187 HOLD_STACK "hold_stack" Text No,
    1188 HOLD_ENDPOINT "hold_endpoint" Text No,
    // CPU time that the holder used after a drop request, from one switch interval on.
    1189 HOLD_CPU "hold_cpu" Seconds No,
    // 1 if the hold has not ended: it is reported again with each tick.
    1190 HOLD_PRESENT "hold_present" Count No,
    // An interpreter's garbage collections in the interval.
    1200 GCS "gcs" Row ByKey,
    1201 GC_INTERPRETER "gc_interpreter" Text Key,
    1202 GC_PAUSES_GENERATION0 "gc_pauses_generation0" Count Sum,
    1203 GC_PAUSES_GENERATION1 "gc_pauses_generation1" Count Sum,
    1204 GC_PAUSES_GENERATION2 "gc_pauses_generation2" Count Sum,
    1205 GC_PAUSE "gc_pause" Histogram Sum,
    1206 GC_COLLECTED_TOTAL "gc_collected_total" Count Sum,
    1207 GC_UNCOLLECTABLE_TOTAL "gc_uncollectable_total" Count Sum,
    // Beside mod_wsgi's fields of slow requests and of the lifecycle.
    1220 SLOW_STACK "slow_stack" Text No,
    1221 SLOW_ENDPOINT "slow_endpoint" Text No,
    1222 SLOW_GIL_HELD_TIME "slow_gil_held_time" Seconds No,
    1223 SLOW_INTERPRETER "slow_interpreter" Text No,
    1240 DEATH "death" Text No,
    1241 SHUTDOWN_DETAIL "shutdown_detail" Text No,
    1242 REPORTED_BY_SUPERVISOR "reported_by_supervisor" Count No,
    // All event loops of a process. An iteration lasts from the end of one wait for events to the
    // beginning of the next, and counts when it has ended.
    1244 LOOP_ITERATION_HISTOGRAM "loop_iteration_histogram" Histogram Sum,
    1245 LOOP_POLLED "loop_polled" Seconds Sum,
    // The parts of iterations.
    1246 LOOP_COMPUTED "loop_computed" Seconds Sum,
    1247 LOOP_WAITED "loop_waited" Seconds Sum,
    1248 LOOP_BLOCKED "loop_blocked" Seconds Sum,
    // The part of LOOP_BLOCKED in which the thread ran.
    1249 LOOP_LATE_RAN_BLOCKED "loop_late_ran_blocked" Seconds Sum,
    // Late iterations, and their parts.
    1250 LOOP_LATE "loop_late" Count Sum,
    1251 LOOP_LATE_COMPUTED "loop_late_computed" Seconds Sum,
    1252 LOOP_LATE_WAITED "loop_late_waited" Seconds Sum,
    1253 LOOP_LATE_BLOCKED "loop_late_blocked" Seconds Sum,
    1254 LOOP_LATE_LIMIT "loop_late_limit" Seconds Distinct,
    // The longest iteration that has not ended, so far.
    1255 LOOP_ITERATING "loop_iterating" Seconds Max,
    // The readers of lines and stacks append these rows to a record, so no other field of records
    // comes behind them.
    // The waits of threads while another one executed a line. A tick has numbers instead of names:
    // see `lines`.
    1260 LINES "lines" Row ByKey,
    1261 LINE_FUNCTION "line_function" Text Key,
    // FILE:NUMBER.
    1262 LINE_PLACE "line_place" Text Key,
    1263 LINE_ENDPOINT "line_endpoint" Text Key,
    1264 LINE_WAITED "line_waited" Seconds Sum,
    // In names only: the thread that held the GIL while an event loop waited for it.
    1265 LINE_HOLDER "line_holder" Text No,
    // In ticks only.
    1270 LINE_NAMES "line_names" Row No,
    1271 LINE_NUMBER "line_number" Count No,
    1272 LINE_NUMBERS "line_numbers" Counts No,
    // In microseconds, in the order of LINE_NUMBERS.
    1273 LINE_TIMES "line_times" Counts No,
    // The same waits by stack. A tick has numbers, and a record has identifiers: see `stacks`.
    1275 CALLS "calls" Row No,
    1276 CALL_NUMBER "call_number" Count No,
    // The number of the caller. The call itself has the fields of a line.
    1277 CALL_PARENT "call_parent" Count No,
    1278 STACK_NUMBERS "stack_numbers" Counts No,
    // In microseconds, in the order of STACK_NUMBERS.
    1279 STACK_TIMES "stack_times" Counts No,
    1280 STACKS "stacks" Row ByKey,
    1281 STACK_ID "stack_id" Text Key,
    1282 STACK_WAITED "stack_waited" Seconds Sum,
    // The time for which event loops were late, by line. A tick has numbers instead of names, those
    // of LINE_NAMES, whose endpoint is the callback.
    1290 LATE_LINES "late_lines" Row ByKey,
    1291 LATE_FUNCTION "late_function" Text Key,
    // FILE:NUMBER.
    1292 LATE_PLACE "late_place" Text Key,
    // The coroutine or callback that the loop ran.
    1293 LATE_CALLBACK "late_callback" Text Key,
    // The thread that held the GIL, where the loop waited for it.
    1294 LATE_HOLDER "late_holder" Text Key,
    // One of `lines::PARTS`, without its parentheses.
    1295 LATE_PART "late_part" Text Key,
    1296 LATE_TIME "late_time" Seconds Sum,
    // In ticks only.
    1297 LATE_NUMBERS "late_numbers" Counts No,
    // Indices of `lines::PARTS`, and microseconds, in the order of LATE_NUMBERS.
    1298 LATE_PARTS "late_parts" Counts No,
    1299 LATE_TIMES "late_times" Counts No,
    // The same by stack, whose outermost call is one of `lines::PARTS`. Numbers are those of CALLS.
    1300 LATE_STACK_NUMBERS "late_stack_numbers" Counts No,
    // In microseconds, in the order of LATE_STACK_NUMBERS.
    1301 LATE_STACK_TIMES "late_stack_times" Counts No,
    1302 LATE_STACKS "late_stacks" Row ByKey,
    1303 LATE_STACK_ID "late_stack_id" Text Key,
    1304 LATE_STACK_TIME "late_stack_time" Seconds Sum,
}

const PLACES: usize = FIELDS[FIELDS.len() - 1].id as usize + 1;
const NOWHERE: u16 = u16::MAX;

/// The index of a number in FIELDS.
static PLACE: [u16; PLACES] = {
    let mut places = [NOWHERE; PLACES];
    let mut place = 0;
    while place < FIELDS.len() {
        let id = FIELDS[place].id as usize;
        assert!(place == 0 || FIELDS[place - 1].id < FIELDS[place].id);
        places[id] = place as u16;
        place += 1;
    }
    places
};

/// The field of a number, if there is one.
pub fn field(id: u16) -> Option<&'static Field> {
    let place = *PLACE.get(usize::from(id))?;
    FIELDS.get(usize::from(place))
}

/// A set of the table's fields.
#[derive(Default)]
pub struct FieldSet([u64; PLACES.div_ceil(64)]);

impl FieldSet {
    /// Returns whether the field is new to the set. `id` is the number of a field.
    pub fn insert(&mut self, id: u16) -> bool {
        let (word, bit) = (usize::from(id / 64), 1 << (id % 64));
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}

/// The field of a name, if there is one.
pub fn field_named(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_find_their_fields() {
        for each in FIELDS {
            assert_eq!(field(each.id), Some(each));
            assert_eq!(field_named(each.name), Some(each));
        }
        assert!([0, 9, 1019, u16::MAX].into_iter().all(|id| field(id).is_none()));
    }
}
