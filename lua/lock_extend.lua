-- Prolongs or releases a lock that is still its holder's.
--
-- KEYS[1]      lock
-- ARGV[1]      the holder's token, ARGV[2] ms to live from now, '0' to release
--
-- Reply        1 done, 0 it is not the holder's any more

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
