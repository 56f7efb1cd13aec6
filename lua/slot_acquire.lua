-- Takes the places of attempts under one tag: all of an account and one of its models, or all of a tenant and one of
-- its users. For an account the submit rates are charged with the places.
--
-- KEYS[1]      readiness marker of the tag
-- KEYS[2]      the broad set (account or tenant)
-- KEYS[3..6]   accounts only: hash of pauses and of the breaker, submit bucket of the account, submit bucket of the model,
--              probes under way
-- KEYS[3..]    narrow sets: users, or (from 7 on) the one model
-- ARGV[1]      'account' or 'tenant'
-- ARGV[2]      places in the broad set
-- ARGV[3]      ms for which the members are vouched, ARGV[4] expiry of the sets in ms (longer than any marker's)
-- ARGV[5]      accounts only: the model, ARGV[6] expiry of a dispatch bucket in ms
-- ARGV[7..12]  accounts only: capacity, refill, per_ms of the account's and of the model's bucket; capacity 0 = none
-- ARGV[5..]    (of an account from 13 on) in the order in which they are to be served: member <task>.<attempt>, which of
--              the narrow sets (1 the first), places in it
--
-- Reply        per member:
--              {1} held (perhaps since an earlier call: then no rate is charged again)
--              {0} the marker is missing: members may be lost, nothing may be taken
--              {2, 1 broad or 2 narrow, used, limit} full
--              {3, retry_after_ms} the rate is used up       {4, retry_after_ms} the provider asked us to wait
--              {5, retry_after_ms} the breaker is open, or half-open with its probes under way
--
-- Why          Members whose vouching ran out count like all others: only the database knows that an attempt is over.
--              A missing dispatch bucket starts empty, so a flush never doubles what a provider gets.
--              A half-open breaker lets one attempt through at a time. A probe whose outcome never comes is over after twice the
--              time of a vouching, which is longer than a submit may take.

local of_account = ARGV[1] == 'account'
local first, narrow_sets = of_account and 13 or 5, of_account and 6 or 2
local replies = {}
if redis.call('EXISTS', KEYS[1]) == 0 then
  for i = first, #ARGV, 3 do
    replies[#replies + 1] = { 0 }
  end
  return replies
end
local now = clock_ms()
local vouched_ms = tonumber(ARGV[3])
local until_ms = string.format('%.0f', now + vouched_ms)
-- Where that was looked up: how many are in each set, which of the members of this call, and those to be written there.
local used, present, taken = {}, {}, {}
local pause, opened, open_until = 0, 0, 0
if of_account then
  local health = redis.call('HMGET', KEYS[3], 'not_before', 'not_before:' .. ARGV[5], 'opened', 'open_until')
  pause = math.max(tonumber(health[1] or '') or 0, tonumber(health[2] or '') or 0)
  opened, open_until = tonumber(health[3] or '') or 0, tonumber(health[4] or '') or 0
end

-- The ms until both buckets have a token; with 0 they are charged.
local function charge_rates()
  local buckets, longest = {}, 0
  for i = 0, 1 do
    local at = 7 + i * 3
    local capacity = tonumber(ARGV[at])
    if capacity > 0 then
      local bucket = bucket_read(KEYS[4 + i], capacity, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), now, 0)
      buckets[#buckets + 1] = bucket
      longest = math.max(longest, bucket_wait_ms(bucket, 1))
    end
  end
  for _, bucket in ipairs(buckets) do
    -- The capacity is kept for slot_release.lua, which gives tokens back without knowing the rule.
    if longest == 0 then
      bucket_write(bucket, bucket.tokens - 1, now, tonumber(ARGV[6]))
      redis.call('HSET', bucket.key, 'capacity', bucket.capacity)
    elseif not bucket.known or bucket.ahead then
      bucket_write(bucket, bucket.tokens, now, tonumber(ARGV[6]))
      redis.call('HSET', bucket.key, 'capacity', bucket.capacity)
    end
  end
  return longest
end

-- Why the account takes nothing new now, if it does not.
local function refused_by_account(member)
  if pause > now then
    return { 4, pause - now }
  end
  if opened > 0 then
    if open_until > now then
      return { 5, open_until - now }
    end
    local under_way = redis.call('ZRANGE', KEYS[6], 0, 0, 'REV', 'WITHSCORES')
    local over_at = tonumber(under_way[2] or '') or 0
    if over_at > now then
      return { 5, math.min(over_at - now, 1000) }
    end
  end
  local wait = charge_rates()
  if wait > 0 then
    return { 3, wait }
  end
  if opened > 0 then
    redis.call('DEL', KEYS[6])
    redis.call('ZADD', KEYS[6], string.format('%.0f', now + 2 * vouched_ms), member)
    redis.call('PEXPIRE', KEYS[6], 2 * vouched_ms)
  end
end

-- Looks up the members of this call in the sets that they want to be in: one command for each set.
local wanted = {}
for i = first, #ARGV, 3 do
  for _, set in ipairs({ KEYS[2], KEYS[narrow_sets + tonumber(ARGV[i + 1])] }) do
    wanted[set] = wanted[set] or {}
    table.insert(wanted[set], ARGV[i])
  end
end
for set, members in pairs(wanted) do
  used[set], present[set], taken[set] = redis.call('ZCARD', set), {}, {}
  for from = 1, #members, 1000 do
    local to = math.min(from + 999, #members)
    for i, score in ipairs(redis.call('ZMSCORE', set, unpack(members, from, to))) do
      present[set][members[from + i - 1]] = score
    end
  end
end

local function acquire(member, narrow, narrow_limit)
  local sets, limits = { KEYS[2], narrow }, { tonumber(ARGV[2]), narrow_limit }
  for i, set in ipairs(sets) do
    if not present[set][member] and used[set] >= limits[i] then
      return { 2, i, used[set], limits[i] }
    end
  end
  local refused = of_account and not present[KEYS[2]][member] and refused_by_account(member)
  if refused then
    return refused
  end
  for _, set in ipairs(sets) do
    table.insert(taken[set], until_ms)
    table.insert(taken[set], member)
    if not present[set][member] then
      present[set][member] = until_ms
      used[set] = used[set] + 1
    end
  end
  return { 1 }
end

for i = first, #ARGV, 3 do
  replies[#replies + 1] = acquire(ARGV[i], KEYS[narrow_sets + tonumber(ARGV[i + 1])], tonumber(ARGV[i + 2]))
end
for set, members in pairs(taken) do
  many(members, 'ZADD', set, 'GT')
  redis.call('PEXPIRE', set, ARGV[4])
end
return replies
