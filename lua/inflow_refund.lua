-- Gives back what inflow.lua charged.
--
-- KEYS[1..]    the limits that were charged
-- ARGV[1..]    six per limit, as inflow.lua has them; whether it is a shadow makes no difference
--
-- Reply        how many limits got something back
--
-- Why          A bucket that is gone is full and a log that is gone is empty, so there is nothing to give back; no bucket
--              rises above its capacity, and a log loses the very entry that was added.

local now, given = clock_ms(), 0
for i = 1, #KEYS do
  local at = 1 + (i - 1) * 6
  local cost, most = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  if ARGV[at] == 'window' then
    if log_remove(KEYS[i], ARGV[at + 5], cost) then
      given = given + 1
    end
  else
    local bucket = bucket_read(KEYS[i], most, tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), now, most)
    if bucket.known then
      local tokens = math.min(most, bucket.tokens + cost)
      bucket_write(bucket, tokens, now, math.max(1, refill_ms(bucket, most - tokens)))
      given = given + 1
    end
  end
end
return given
