-- Appends a tenant's changes to its capped stream and publishes them.
--
-- KEYS[1]      stream
-- ARGV[1]      channel, ARGV[2] entries to keep, ARGV[3] ms to live
-- ARGV[4..]    one JSON change each
--
-- Reply        how many entries the stream has now
--
-- Why          Entry, cap and expiry are one script, so no stream grows or stays for ever.

for i = 4, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'change', ARGV[i])
  redis.call('PUBLISH', ARGV[1], ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('XLEN', KEYS[1])
