-- Decides all entry limits of one request together, token buckets and strict windows: refused by one is charged by none.
-- A replay entry answers first and charges nothing.
--
-- KEYS[1]      replay entry of the idempotency key (a name that never exists, when the request has none)
-- KEYS[2..]    one limit per check, all of the same tenant: a bucket's hash or a window's zset
-- ARGV[1]      '1' to look at the replay entry
-- ARGV[2]      '1' to charge, '0' to say only what would be; then nothing is written
-- ARGV[3..]    six per check:
--                'bucket' or 'window'
--                '1' for a shadow, which is charged like any other but refuses nobody
--                cost
--                capacity of the bucket, or limit of the window
--                refill of the bucket, or length of the window in ms
--                period of the refill in ms, or the name of the window's entry; the same name is counted once
--
-- Reply        {0, answer}                       the replay entry
--              {1, state...}                     granted
--              {2, check, wait_ms, state...}     refused by this check (from 1), the one with the longest wait
--              {3, check}                        the check wants more than its limit can ever hold
--              A state is three numbers per check: what is left, the time in ms until all of it is back, and how the check
--              stands: 0 lets it through, 1 has counted this entry before, 2 has too little left (and refused, unless it is
--              a shadow).
--
-- Why          A missing bucket is full and a missing log empty: a key's expiry is the time until it says no more than its
--              absence, so forgetting it changes nothing and every key of the limiter is gone within one window. (No
--              jitter: longer would break that, shorter would forget a debt.) A refusal writes nothing, so hammering
--              cannot round a refill away or fill a log.

local PASSES, COUNTED, SHORT = 0, 1, 2

if ARGV[1] == '1' then
  local answer = redis.call('GET', KEYS[1])
  if answer then
    return { 0, answer }
  end
end

local now = clock_ms()
local checks, refused, longest = {}, nil, 0
for i = 2, #KEYS do
  local at = 3 + (i - 2) * 6
  local shadow, cost = ARGV[at + 1] == '1', tonumber(ARGV[at + 2])
  local most, second, third = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5]
  if cost > most and not shadow then
    return { 3, i - 1 }
  end
  local check, wait = { cost = cost, stands = PASSES }, 0
  if ARGV[at] == 'window' then
    check.log, check.entry = log_read(KEYS[i], most, second, now), third
    if log_holds(check.log, third, now) then
      check.stands = COUNTED
    else
      wait = log_wait_ms(check.log, cost, now)
    end
  else
    check.bucket = bucket_read(KEYS[i], most, second, tonumber(third), now, most)
    wait = bucket_wait_ms(check.bucket, cost)
  end
  if wait > 0 then
    check.stands = SHORT
    if not shadow and wait > longest then
      refused, longest = i - 1, wait
    end
  end
  checks[i - 1] = check
end

local reply = refused and { 2, refused, longest } or { 1 }
for _, check in ipairs(checks) do
  local bucket, log = check.bucket, check.log
  if ARGV[2] == '1' then
    local charge = not refused and check.stands == PASSES
    if bucket and charge then
      local left = bucket.tokens - check.cost
      bucket_write(bucket, left, now, math.max(1, refill_ms(bucket, bucket.capacity - left)))
    elseif bucket then
      bucket_heal(bucket, now)
    elseif charge then
      log_add(log, check.entry, check.cost, now)
    else
      log_heal(log, now)
    end
  end
  reply[#reply + 1] = bucket and math.floor(bucket.tokens + EPSILON) or math.max(0, log.limit - log.count)
  reply[#reply + 1] = bucket and refill_ms(bucket, bucket.capacity - bucket.tokens) or log_reset_ms(log, now)
  reply[#reply + 1] = check.stands
end
return reply
