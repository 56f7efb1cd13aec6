-- The sliding log of one address's failed authentications.
--
-- KEYS[1]      zset: one member per failure, score = when, in ms
-- ARGV[1]      limit, ARGV[2] window in ms, ARGV[3] '1' to note a failure, '0' to look only
--
-- Reply        {1, failures left} or {0, retry_after_ms}
--
-- Why          Exact, since a guess too many matters here; lib_window says what else a log promises. A failure beyond the
--              limit isn't noted, so the wait is over when it was said to be, however hard the address tries meanwhile.

local now = clock_ms()
local log = log_read(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), now)
if ARGV[3] == '1' and log.count < log.limit then
  -- Microseconds and the count make the member unique within this script's serial world.
  local time = redis.call('TIME')
  log_add(log, time[1] .. '.' .. time[2] .. '.' .. log.count, 1, now)
else
  log_heal(log, now)
end
if log.count < log.limit then
  return { 1, log.limit - log.count }
end
return { 0, log_wait_ms(log, 1, now) }
