-- Puts live attempts of one tag back into their sets, whatever the limits; as the last part of a rebuild it sets the
-- readiness marker.
--
-- KEYS[1]      readiness marker, KEYS[2] lock of the rebuild
-- KEYS[3]      the broad set, KEYS[4..] narrow sets
-- ARGV[1]      token of the lock, or '' to restore without a rebuild
-- ARGV[2]      ms for which each is vouched, ARGV[3] expiry of the sets in ms
-- ARGV[4]      expiry of the marker in ms when this is the last part of a rebuild, else '0'
-- ARGV[5..]    per attempt: member, index in KEYS of its narrow set
--
-- Reply        1 done, 0 the lock is gone
--
-- Why          Members that are there stay, with their time: they may be just being claimed. The lock shares the tag
--              and a flush takes it along, so a rebuild that a flush has overtaken never sets the marker.

if ARGV[1] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local until_ms = string.format('%.0f', now + tonumber(ARGV[2]))
for i = 5, #ARGV, 2 do
  redis.call('ZADD', KEYS[3], 'NX', until_ms, ARGV[i])
  redis.call('ZADD', KEYS[tonumber(ARGV[i + 1])], 'NX', until_ms, ARGV[i])
end
for i = 3, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
if ARGV[4] ~= '0' then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[4])
  redis.call('DEL', KEYS[2])
end
return 1
