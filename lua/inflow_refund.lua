-- Gives back what inflow.lua charged.
--
-- KEYS[1..]    the buckets
-- ARGV[1..]    per bucket: capacity, refill, per_ms, cost
--
-- Reply        how many buckets got something back
--
-- Why          A bucket that is gone is full, so there is nothing to give back; none rises above its capacity.

local now, given = clock_ms(), 0
for i = 1, #KEYS do
  local at = 1 + (i - 1) * 4
  local capacity = tonumber(ARGV[at])
  local bucket = bucket_read(KEYS[i], capacity, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), now, capacity)
  if bucket.known then
    local tokens = math.min(capacity, bucket.tokens + tonumber(ARGV[at + 3]))
    bucket_write(bucket, tokens, now, math.max(1, refill_ms(bucket, capacity - tokens)))
    given = given + 1
  end
end
return given
