-- Sets a task's snapshot unless a newer one is there.
--
-- KEYS[1]      snapshot, KEYS[2] note that the task does not exist
-- ARGV[1]      version, ARGV[2] JSON object whose first member is `version`, ARGV[3] ms to live
--
-- Reply        1 set, 0 a newer one is there
--
-- Why          Projections of two transitions may arrive in either order; the later version must win. An equal version
--              is set: it prolongs the entry and may carry what changes between versions. Only the first member is
--              looked at: decoding the whole object took longer than everything else here, and no text that a user
--              wrote can come before it. What begins otherwise is not ours and is replaced.

local held = redis.call('GETRANGE', KEYS[1], 0, 31)
local version = tonumber(string.match(held, '^{"version":(%d+)[,}]') or '') or 0
if version > tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
