-- Sets a task's snapshot unless a newer one is there.
--
-- KEYS[1]      snapshot, KEYS[2] note that the task does not exist
-- ARGV[1]      version, ARGV[2] JSON object with a member `version`, ARGV[3] ms to live
--
-- Reply        1 set, 0 a newer one is there
--
-- Why          Projections of two transitions may arrive in either order; the later version must win. An equal version
--              is set: it prolongs the entry and may carry what changes between versions.

local held = redis.call('GET', KEYS[1])
if held then
  local ok, snapshot = pcall(cjson.decode, held)
  if ok and type(snapshot) == 'table' and (tonumber(snapshot.version) or 0) > tonumber(ARGV[1]) then
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
