-- Holds the submits of a provider account, or of one of its models, back.
--
-- KEYS[1]      hash of the account
-- ARGV[1]      field: 'not_before' or 'not_before:<model>'
-- ARGV[2]      ms from now
--
-- Reply        the instant until which it holds
--
-- Why          A later end wins: two workers that met the same 429 must not shorten each other's pause.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = math.max(now + tonumber(ARGV[2]), tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '') or 0)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends))
local keep = ends - now + 60000
if redis.call('PTTL', KEYS[1]) < keep then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))
end
return ends
