-- Token buckets, for the scripts that this file is put in front of, after lib_clock.
--
-- A bucket is a hash: tokens (decimal text, since Redis would cut a fraction off), last_refill_ms. All arithmetic is
-- on Redis's own clock. What the hash says is not trusted: a value above the capacity, below zero, of another type, or
-- a time in the future is clamped, so a planted or half-written key heals when it is first touched.

local EPSILON = 0.000001

-- Milliseconds in which so many tokens come back.
local function refill_ms(bucket, tokens)
  return math.ceil(tokens * bucket.per_ms / bucket.refill - EPSILON)
end

-- Reads a bucket as of now. `missing` is what it holds when there is none.
local function bucket_read(key, capacity, refill, per_ms, now, missing)
  local bucket = { key = key, capacity = capacity, refill = refill, per_ms = per_ms }
  local state = redis.pcall('HMGET', key, 'tokens', 'last_refill_ms')
  if state.err then
    bucket.foreign = true
    state = {}
  end
  local tokens, last = tonumber(state[1] or ''), tonumber(state[2] or '')
  bucket.known = tokens ~= nil and last ~= nil and tokens == tokens and last == last
  if not bucket.known then
    tokens, last = missing, now
  end
  bucket.ahead = last > now
  -- Clamped before multiplying: a month's rest must not overflow, and a clock set back must not take tokens away.
  local elapsed = math.max(0, math.min(now - last, refill_ms(bucket, capacity)))
  bucket.tokens = math.max(0, math.min(capacity, math.max(0, tokens) + elapsed * refill / per_ms))
  return bucket
end

-- How long until the bucket holds so many tokens; 0 when it does.
local function bucket_wait_ms(bucket, cost)
  if bucket.tokens + EPSILON >= cost then
    return 0
  end
  return math.max(1, refill_ms(bucket, cost - bucket.tokens))
end

-- Writes a bucket as of now, with its expiry.
local function bucket_write(bucket, tokens, now, ttl_ms)
  tokens = math.max(0, math.min(bucket.capacity, tokens))
  if bucket.foreign then
    redis.call('DEL', bucket.key)
  end
  redis.call('HSET', bucket.key, 'tokens', string.format('%.9f', tokens), 'last_refill_ms', string.format('%.0f', now))
  redis.call('PEXPIRE', bucket.key, string.format('%.0f', ttl_ms))
  bucket.tokens = tokens
end

-- Heals a bucket that nothing is taken from: a time from before a clock was set back would stop the refill, a missing
-- expiry would stay for ever.
local function bucket_heal(bucket, now)
  if bucket.known and (bucket.ahead or redis.call('PTTL', bucket.key) < 0) then
    bucket_write(bucket, bucket.tokens, now, math.max(1, refill_ms(bucket, bucket.capacity - bucket.tokens)))
  end
end
