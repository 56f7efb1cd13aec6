-- Sliding logs, for the scripts that this file is put in front of, after lib_clock.
--
-- A log is a zset: one member for each thing counted, score = when, in ms. It is exact: no stretch of the window's length
-- holds more than the limit. Whoever is refused adds nothing, so neither memory nor a wait grows with an attack, and the
-- expiry is the window itself: a log that is gone is one that nothing counts in.
--
-- What the zset says is not trusted. A key of another type is an empty log. Members from before a clock was set back
-- count, and leave one window from now at the latest; a time further ahead than that is nobody's and doesn't count.

local function as_score(ms)
  return string.format('%.0f', ms)
end

-- Reads a log as of now. Writes nothing.
local function log_read(key, limit, window_ms, now)
  local log = { key = key, limit = limit, window_ms = window_ms, count = 0 }
  log.after, log.until_ms = '(' .. as_score(now - window_ms), as_score(now + window_ms)
  local count = redis.pcall('ZCOUNT', key, log.after, log.until_ms)
  if type(count) == 'table' then
    log.foreign = true
    return log
  end
  log.count = count
  if count > 0 then
    local newest = redis.call('ZREVRANGEBYSCORE', key, log.until_ms, log.after, 'WITHSCORES', 'LIMIT', 0, 1)
    log.ahead = tonumber(newest[2]) > now
    log.newest = math.min(now, tonumber(newest[2]))
  end
  return log
end

-- Whether this entry is counted already.
local function log_holds(log, entry, now)
  if log.count == 0 then
    return false
  end
  local at = tonumber(redis.call('ZSCORE', log.key, entry) or '')
  return at ~= nil and at > now - log.window_ms and at <= now + log.window_ms
end

-- How long until there is room for so many more; 0 when there is.
local function log_wait_ms(log, cost, now)
  local excess = log.count + cost - log.limit
  if excess <= 0 then
    return 0
  end
  if excess > log.count then
    return log.window_ms -- more than the window ever holds; whoever asks that much is told so elsewhere
  end
  -- There is room when so many of the oldest have left.
  local last =
    redis.call('ZRANGEBYSCORE', log.key, log.after, log.until_ms, 'WITHSCORES', 'LIMIT', excess - 1, 1)
  return math.max(1, math.min(now, tonumber(last[2])) + log.window_ms - now)
end

-- How long until nothing of it counts any more.
local function log_reset_ms(log, now)
  return log.newest and math.max(0, log.newest + log.window_ms - now) or 0
end

-- Takes out what no longer counts, and brings what lies ahead back to now.
local function log_tidy(log, now)
  if log.foreign then
    redis.call('DEL', log.key)
    return
  end
  redis.call('ZREMRANGEBYSCORE', log.key, '-inf', as_score(now - log.window_ms))
  redis.call('ZREMRANGEBYSCORE', log.key, '(' .. log.until_ms, '+inf')
  if log.ahead then
    local early = redis.call('ZRANGEBYSCORE', log.key, '(' .. as_score(now), '+inf')
    for _, member in ipairs(early) do
      redis.call('ZADD', log.key, as_score(now), member)
    end
  end
end

-- Heals a log that nothing is added to: another type would be in the way, a time ahead or a missing expiry would stay.
local function log_heal(log, now)
  if log.foreign or log.ahead or (log.count > 0 and redis.call('PTTL', log.key) < 0) then
    log_tidy(log, now)
    redis.call('PEXPIRE', log.key, as_score(log.window_ms))
  end
end

-- The members that an entry of this cost has.
local function log_members(entry, cost)
  local members = { entry }
  for i = 2, cost do
    members[i] = entry .. ':' .. i
  end
  return members
end

-- Counts an entry, with the expiry.
local function log_add(log, entry, cost, now)
  log_tidy(log, now)
  for _, member in ipairs(log_members(entry, cost)) do
    redis.call('ZADD', log.key, as_score(now), member)
  end
  redis.call('PEXPIRE', log.key, as_score(log.window_ms))
  log.count, log.newest = log.count + cost, now
end

-- Takes an entry back.
local function log_remove(key, entry, cost)
  local removed = redis.pcall('ZREM', key, unpack(log_members(entry, cost)))
  return type(removed) == 'number' and removed > 0
end
