-- Takes in how a submit to a provider account went: opens its breaker, opens it again for longer, or closes it.
--
-- KEYS[1]      hash of the account, KEYS[2] probes under way (both as slot_acquire.lua reads them)
-- ARGV[1]      'well' or 'trouble'
-- ARGV[2]      member <task>.<attempt>
-- ARGV[3]      troubles in a row that are taken for chance
-- ARGV[4]      ms within which troubles count once
-- ARGV[5]      ms of the first pause, ARGV[6] what each further one is multiplied with, ARGV[7] ms of the longest
-- ARGV[8]      what the pause is multiplied with to spread it, as text
-- ARGV[9]      ms that the hash outlives a pause
--
-- Reply        {1 if the breaker is not closed now, ms until probes are let through, 1 if this call opened or closed it}
--
-- Why          A provider that starts again breaks every submit under way at once: that is one trouble. While the breaker is
--              open, what was sent before says nothing new; only a probe's trouble opens it for longer. Any answer closes
--              it: the provider is there.

local now = clock_ms()
local state = redis.call('HMGET', KEYS[1], 'troubles', 'trouble_at', 'opened', 'open_until')
local troubles, trouble_at = tonumber(state[1] or '') or 0, tonumber(state[2] or '') or 0
local opened, open_until = tonumber(state[3] or '') or 0, tonumber(state[4] or '') or 0
local probe = redis.call('ZREM', KEYS[2], ARGV[2]) == 1

if ARGV[1] == 'well' then
  redis.call('HDEL', KEYS[1], 'troubles', 'trouble_at', 'opened', 'open_until')
  redis.call('DEL', KEYS[2])
  return { 0, 0, opened > 0 and 1 or 0 }
end

local opens = false
if opened > 0 then
  opens = probe
elseif now - trouble_at >= tonumber(ARGV[4]) or now < trouble_at then
  troubles = troubles + 1
  redis.call('HSET', KEYS[1], 'troubles', troubles, 'trouble_at', string.format('%.0f', now))
  opens = troubles > tonumber(ARGV[3])
end
if opens then
  opened = opened + 1
  local grown = tonumber(ARGV[5]) * math.pow(tonumber(ARGV[6]), math.min(opened - 1, 32))
  open_until = now + math.floor(math.min(grown, tonumber(ARGV[7])) * tonumber(ARGV[8]))
  redis.call('HSET', KEYS[1], 'opened', opened, 'open_until', string.format('%.0f', open_until))
end
local left = math.max(0, open_until - now)
local keep = left + tonumber(ARGV[9])
if redis.call('PTTL', KEYS[1]) < keep then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))
end
return { opened > 0 and 1 or 0, left, opens and 1 or 0 }
