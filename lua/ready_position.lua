-- About how many turns away a task is.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched (unused)
-- ARGV[2]      task, ARGV[3] tenant, ARGV[4] user
--
-- Reply        {among all, among its tenant's, among its user's}: 1 it is next or claimed, 2 one before it, ...;
--              {0, 0, 0} it is not among the heads
--
-- Why          Before a task come those before it in its user's queue, and of every other user (tenant) as many as it
--              gets turns meanwhile, at most what it has. The first 32 others are counted, the rest taken for long.

local OTHERS_MAX = 32
local task, tenant, user = ARGV[2], ARGV[3], ARGV[4]
if redis.call('ZSCORE', P .. 'claimed', task) then
  return { 1, 1, 1 }
end
local own = user_key(tenant, user)
local before = redis.call('ZRANK', own .. ':tasks', task)
if not before then
  if not redis.call('ZSCORE', own .. ':later', task) then
    return { 0, 0, 0 }
  end
  before = redis.call('ZCARD', own .. ':tasks')
end

-- Adds the turns of the others in `zset`, whose members `have(other)` tasks and weigh `share(other)` of `member`.
local function with_others(zset, member, turns, have, share)
  local rank = redis.call('ZRANK', zset, member)
  local all, seen, sum = redis.call('ZCARD', zset), 0, turns
  for i, other in ipairs(redis.call('ZRANGE', zset, 0, OTHERS_MAX - 1)) do
    if other ~= member then
      local first = (not rank or i - 1 < rank) and 1 or 0
      sum = sum + math.min(have(other), math.ceil((turns + first) * share(other)))
    end
    seen = seen + 1
  end
  local unseen = math.max(0, all - seen - ((rank and rank >= OTHERS_MAX) and 1 or 0))
  return sum + unseen * turns
end

local of_user = before + 1
before = with_others(tenant_key(tenant) .. ':users', user, before,
  function(other) return redis.call('ZCARD', user_key(tenant, other) .. ':tasks') end,
  function() return 1 end)
local of_tenant = before + 1

local function number(of, field, missing)
  return tonumber(redis.call('HGET', tenant_key(of), field) or '') or missing
end
local weight = math.max(1, number(tenant, 'w', 1))
before = with_others(P .. 'active', tenant, before,
  function(other) return math.max(0, number(other, 'n', 0)) end,
  function(other) return math.max(1, number(other, 'w', 1)) / weight end)

-- Never more than wait at all.
local total = tonumber(redis.call('GET', P .. 'n') or '') or 0
total = math.max(1, total)
return { math.min(before + 1, total), math.min(of_tenant, total), math.min(of_user, total) }
