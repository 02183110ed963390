-- What wrk found, as one line of JSON, the last that it prints. Only done() is defined: wrk calls
-- request() and response() for every request, and takes longer over each.
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, "not_ok": %d, "failed": %d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
