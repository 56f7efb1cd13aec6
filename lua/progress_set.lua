-- Sets a task's progress if it is later than what is there.
--
-- KEYS[1]      progress, as <version>:<percent>
-- ARGV[1]      version, ARGV[2] percent, ARGV[3] ms to live
--
-- Reply        1 set, 0 what is there is as late or later

local version, percent = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('GET', KEYS[1])
if held then
  local held_version, held_percent = string.match(held, '^(%d+):(%d+)$')
  held_version, held_percent = tonumber(held_version or ''), tonumber(held_percent or '')
  if held_version and (held_version > version or (held_version == version and held_percent >= percent)) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2], 'PX', ARGV[3])
return 1
