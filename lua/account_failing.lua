-- Notes that submits to a provider account fail, and holds them back until the next probe.
--
-- KEYS[1]      hash of the account
-- ARGV[1]      ms until the next probe
-- ARGV[2]      ms after which it is forgotten that the account fails, unless it has failed again
--
-- Reply        the instant of the next probe
--
-- Why          The field stays when its instant has passed: then slot_acquire.lua lets one submit a second through, until
--              one of them is answered and the field is deleted.

local next_probe = clock_ms() + tonumber(ARGV[1])
redis.call('HSET', KEYS[1], 'failing', string.format('%.0f', next_probe))
local keep = tonumber(ARGV[1]) + tonumber(ARGV[2])
if redis.call('PTTL', KEYS[1]) < keep then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))
end
return next_probe
