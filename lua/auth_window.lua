-- The sliding log of one address's failed authentications.
--
-- KEYS[1]      zset: one member per failure, score = when, in ms
-- ARGV[1]      limit, ARGV[2] window in ms, ARGV[3] '1' to note a failure, '0' to look only
--
-- Reply        {1, failures left} or {0, retry_after_ms}
--
-- Why          Exact, since a guess too many matters here. Never longer than the limit: whoever is refused already adds
--              nothing, so neither memory nor the wait grows with the attack. Count and expiry are one script.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' and kind ~= 'none' then
  redis.call('DEL', KEYS[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
-- Entries from before a clock was set back would lock the address out for longer than the window.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
local count = redis.call('ZCARD', KEYS[1])
if ARGV[3] == '1' and count < limit then
  -- Microseconds and the count make the member unique within this script's serial world.
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), time[1] .. '.' .. time[2] .. '.' .. count)
  redis.call('PEXPIRE', KEYS[1], window)
  count = count + 1
elseif count > 0 and redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], window)
end
if count < limit then
  return { 1, limit - count }
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local since = tonumber(oldest[2] or now)
return { 0, math.max(1, since + window - now) }
