-- Takes the places of one attempt under one tag: all of an account and one of its models, or all of a tenant and one of
-- its users. For an account the submit rates are charged with the places.
--
-- KEYS[1]      readiness marker of the tag
-- KEYS[2]      the broad set (account or tenant), KEYS[3] the narrow set (model or user)
-- KEYS[4..7]   accounts only: hash of pauses and of the breaker, submit bucket of the account, submit bucket of the model,
--              probes under way
-- ARGV[1]      member <task>.<attempt>
-- ARGV[2]      places in the broad set, ARGV[3] in the narrow one
-- ARGV[4]      ms for which the member is vouched, ARGV[5] expiry of the sets in ms (longer than any marker's)
-- ARGV[6]      accounts only: the model, ARGV[7] expiry of a dispatch bucket in ms
-- ARGV[8..13]  accounts only: capacity, refill, per_ms of the account's and of the model's bucket; capacity 0 = none
--
-- Reply        {1} held (perhaps since an earlier call: then no rate is charged again)
--              {0} the marker is missing: members may be lost, nothing may be taken
--              {2, 1 broad or 2 narrow, used, limit} full
--              {3, retry_after_ms} the rate is used up       {4, retry_after_ms} the provider asked us to wait
--              {5, retry_after_ms} the breaker is open, or half-open with its probes under way
--
-- Why          Members whose vouching ran out count like all others: only the database knows that an attempt is over.
--              A missing dispatch bucket starts empty, so a flush never doubles what a provider gets.
--              A half-open breaker lets one attempt through at a time. A probe whose outcome never comes is over after twice the
--              time of a vouching, which is longer than a submit may take.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return { 0 }
end
local now = clock_ms()
local member = ARGV[1]
local until_ms = string.format('%.0f', now + tonumber(ARGV[4]))
local in_broad = redis.call('ZSCORE', KEYS[2], member)
local in_narrow = redis.call('ZSCORE', KEYS[3], member)

if not in_broad then
  local used, limit = redis.call('ZCARD', KEYS[2]), tonumber(ARGV[2])
  if used >= limit then
    return { 2, 1, used, limit }
  end
end
if not in_narrow then
  local used, limit = redis.call('ZCARD', KEYS[3]), tonumber(ARGV[3])
  if used >= limit then
    return { 2, 2, used, limit }
  end
end

local probes = false
if #KEYS > 3 and not in_broad then
  local pauses = redis.call('HMGET', KEYS[4], 'not_before', 'not_before:' .. ARGV[6])
  local pause = math.max(tonumber(pauses[1] or '') or 0, tonumber(pauses[2] or '') or 0)
  if pause > now then
    return { 4, pause - now }
  end
  local breaker = redis.call('HMGET', KEYS[4], 'opened', 'open_until')
  if (tonumber(breaker[1] or '') or 0) > 0 then
    local open_until = tonumber(breaker[2] or '') or 0
    if open_until > now then
      return { 5, open_until - now }
    end
    local under_way = redis.call('ZRANGE', KEYS[7], 0, 0, 'REV', 'WITHSCORES')
    local over_at = tonumber(under_way[2] or '') or 0
    if over_at > now then
      return { 5, math.min(over_at - now, 1000) }
    end
    probes = true
  end
  local buckets, longest = {}, 0
  for i = 0, 1 do
    local at = 8 + i * 3
    local capacity = tonumber(ARGV[at])
    if capacity > 0 then
      local bucket = bucket_read(KEYS[5 + i], capacity, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), now, 0)
      buckets[#buckets + 1] = bucket
      longest = math.max(longest, bucket_wait_ms(bucket, 1))
    end
  end
  for _, bucket in ipairs(buckets) do
    -- The capacity is kept for slot_release.lua, which gives tokens back without knowing the rule.
    if longest == 0 then
      bucket_write(bucket, bucket.tokens - 1, now, tonumber(ARGV[7]))
      redis.call('HSET', bucket.key, 'capacity', bucket.capacity)
    elseif not bucket.known or bucket.ahead then
      bucket_write(bucket, bucket.tokens, now, tonumber(ARGV[7]))
      redis.call('HSET', bucket.key, 'capacity', bucket.capacity)
    end
  end
  if longest > 0 then
    return { 3, longest }
  end
end

if probes then
  redis.call('DEL', KEYS[7])
  local lives = 2 * tonumber(ARGV[4])
  redis.call('ZADD', KEYS[7], string.format('%.0f', now + lives), member)
  redis.call('PEXPIRE', KEYS[7], lives)
end
for i = 2, 3 do
  redis.call('ZADD', KEYS[i], 'GT', until_ms, member)
  redis.call('PEXPIRE', KEYS[i], ARGV[5])
end
return { 1 }
