-- The sliding counter of one address.
--
-- KEYS[1]      hash: number of a small bucket of time -> requests in it
-- ARGV[1]      limit, ARGV[2] window in ms, ARGV[3] cost
--
-- Reply        {1, requests left} or {0, retry_after_ms}
--
-- Why          Ten small buckets per window; the one that is half out of the window counts by the half that is in, so
--              the count slides instead of jumping at a boundary. At most eleven fields, whatever the traffic. Refused
--              requests are not counted. Count and expiry are one script; the expiry is the window itself (longer
--              would break its promise, shorter would forget).

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local width = math.ceil(window / 10)
local current = math.floor(now / width)
local from = now - window

local flat = redis.pcall('HGETALL', KEYS[1])
local foreign = flat.err ~= nil
if foreign then
  flat = {}
end

local stale, live, count = {}, {}, 0
for i = 1, #flat, 2 do
  local number, requests = tonumber(flat[i]), tonumber(flat[i + 1])
  local start = number and number * width
  if not number or not requests or requests < 0 or start + width <= from or number > current then
    stale[#stale + 1] = flat[i]
  else
    local inside = math.min(1, (start + width - from) / width)
    live[#live + 1] = { start = start, requests = requests, counted = requests * inside }
    count = count + requests * inside
  end
end

if count + cost > limit then
  -- Walk from the oldest: each leaves the window evenly over its own width.
  table.sort(live, function(a, b) return a.start < b.start end)
  local excess, wait = count + cost - limit, window
  for _, bucket in ipairs(live) do
    if excess <= bucket.counted then
      local leaves = math.max(0, bucket.start - from)
      wait = leaves + math.ceil(excess * width / bucket.requests)
      break
    end
    excess = excess - bucket.counted
  end
  if not foreign and #flat > 0 and redis.call('PTTL', KEYS[1]) < 0 then
    redis.call('PEXPIRE', KEYS[1], window)
  end
  return { 0, math.max(1, math.min(wait, window)) }
end

if foreign then
  redis.call('DEL', KEYS[1])
end
for _, field in ipairs(stale) do
  redis.call('HDEL', KEYS[1], field)
end
redis.call('HINCRBY', KEYS[1], string.format('%.0f', current), cost)
redis.call('PEXPIRE', KEYS[1], window)
return { 1, math.floor(limit - count - cost) }
