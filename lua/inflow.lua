-- Decides all token buckets of one request together: refused by one is charged by none. A replay entry answers first
-- and charges nothing.
--
-- KEYS[1]      replay entry of the idempotency key (a name that never exists, when the request has none)
-- KEYS[2..]    one bucket per check, all of the same tenant
-- ARGV[1]      '1' to look at the replay entry
-- ARGV[2..]    per check: capacity, refill, per_ms, cost
--
-- Reply        {0, answer}                                      the replay entry
--              {1, remaining, reset_ms, ...}                    granted; two numbers per check
--              {2, check, retry_after_ms, remaining, reset_ms, ...}  refused by this check (from 1), the longest wait
--              {3, check}                                       the check wants more than its bucket can ever hold
--
-- Why          A missing bucket is full: a bucket's expiry is the time until it is full again, so forgetting it changes
--              nothing and every key of the limiter is gone within one window. (No jitter: longer would break that,
--              shorter would forget a debt.) A refusal writes nothing, so hammering cannot round the refill away.

if ARGV[1] == '1' then
  local answer = redis.call('GET', KEYS[1])
  if answer then
    return { 0, answer }
  end
end

local now = clock_ms()
local buckets, refused, longest = {}, nil, 0
for i = 2, #KEYS do
  local at = 2 + (i - 2) * 4
  local capacity, cost = tonumber(ARGV[at]), tonumber(ARGV[at + 3])
  if cost > capacity then
    return { 3, i - 1 }
  end
  local bucket = bucket_read(KEYS[i], capacity, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), now, capacity)
  bucket.cost = cost
  buckets[i - 1] = bucket
  local wait = bucket_wait_ms(bucket, cost)
  if wait > longest then
    refused, longest = i - 1, wait
  end
end

local reply = refused and { 2, refused, longest } or { 1 }
for _, bucket in ipairs(buckets) do
  if not refused then
    local left = bucket.tokens - bucket.cost
    bucket_write(bucket, left, now, math.max(1, refill_ms(bucket, bucket.capacity - left)))
  elseif bucket.known and (bucket.ahead or redis.call('PTTL', bucket.key) < 0) then
    -- Heal: a time from before a clock was set back would stop the refill, a missing expiry would stay for ever.
    bucket_write(bucket, bucket.tokens, now, math.max(1, refill_ms(bucket, bucket.capacity - bucket.tokens)))
  end
  reply[#reply + 1] = math.floor(bucket.tokens + EPSILON)
  reply[#reply + 1] = refill_ms(bucket, bucket.capacity - bucket.tokens)
end
return reply
