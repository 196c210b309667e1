-- A chat completion asked for again and again; the figures as one line of JSON.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"fast","messages":[{"role":"system","content":"You are brief."},'
  .. '{"role":"user","content":"What does the quick brown fox do?"}],"max_tokens":20}'

function done(summary, latency)
  local failed = 0
  for _, kind in ipairs({ "connect", "read", "write", "status", "timeout" }) do
    failed = failed + summary.errors[kind]
  end
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"failed":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration / 1e6, failed,
    latency:percentile(50), latency:percentile(99)
  ))
end
