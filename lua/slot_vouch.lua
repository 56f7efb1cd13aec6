-- Vouches for attempts of one tag: the heartbeat of all of a worker's jobs in one call.
--
-- KEYS[1]      the broad set, KEYS[2..] narrow sets
-- ARGV[1]      ms from now, ARGV[2] expiry of the sets in ms
-- ARGV[3..]    per attempt: member, index in KEYS of its narrow set
--
-- Reply        per attempt 1 when both sets have it, 0 when one has lost it
--
-- Why          It adds nothing: what is lost comes back only from the database. It keeps the sets alive as long as
--              somebody follows one of their jobs.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local until_ms = string.format('%.0f', now + tonumber(ARGV[1]))
local reply = {}
for i = 3, #ARGV, 2 do
  local kept = 1
  for _, key in ipairs({ KEYS[1], KEYS[tonumber(ARGV[i + 1])] }) do
    if redis.call('ZSCORE', key, ARGV[i]) then
      redis.call('ZADD', key, 'XX', 'GT', until_ms, ARGV[i])
    else
      kept = 0
    end
  end
  reply[#reply + 1] = kept
end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[2])
end
return reply
