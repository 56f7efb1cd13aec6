-- Takes the tasks whose turn it is and claims them.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2]      how many at most
-- ARGV[3]      ms after which a claimed task comes back by itself
-- ARGV[4]      who pops: names the last answer that it was given
-- ARGV[5]      which pop of theirs this is: another text than the one before, unless that one's answer was lost
--
-- Reply        {marker set 1 or 0, ms until something parked or claimed comes back or -1,
--               {tenant, user, ...} users to refill from the database, {task, record, ...} in the order of their turn}
--
-- Why          An answer that was lost would hide its tasks until their claims run out. So the last tasks of each popper are
--              remembered for as long, and the same pop once more is told them again and takes nothing new.
--              Timers and claims that ran out come back first, a bounded number per call. A user whose heads run low
--              while the database has more is named once, so that its next tasks are there before the last head goes.

local last = P .. 'pop:' .. ARGV[4]
local before = redis.call('LRANGE', last, 0, -1)
if before[1] == ARGV[5] then
  local refilled = tonumber(before[2])
  local refill, popped = {}, {}
  for place = 3, #before do
    local list = place <= 2 + refilled and refill or popped
    list[#list + 1] = before[place]
  end
  return { redis.call('EXISTS', P .. 'ready'), 0, refill, popped }
end

local now = clock_ms()
local claim_until = now + tonumber(ARGV[3])

for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. 'timers', '-inf', whole(now), 'LIMIT', 0, 128)) do
  local kind, tenant, user = string.match(member, '^(%a):([^:]+):?(.*)$')
  redis.call('ZREM', P .. 'timers', member)
  if kind == 't' then
    join_tenant(tenant)
  elseif kind == 'u' then
    join_user(tenant, user)
  elseif kind == 'l' then
    local own = user_key(tenant, user)
    for _, task in ipairs(redis.call('ZRANGEBYSCORE', own .. ':later', '-inf', whole(now), 'LIMIT', 0, HEADS_MAX)) do
      redis.call('ZREM', own .. ':later', task)
      local record = redis.call('GET', P .. 'k:' .. task)
      if record then
        local _, _, score = fields(record)
        redis.call('ZADD', own .. ':tasks', score, task)
      else
        count(tenant, -1)
      end
    end
    touch(own .. ':tasks')
    set_later_timer(tenant, user)
    join_user(tenant, user)
  end
end

for _, task in ipairs(redis.call('ZRANGEBYSCORE', P .. 'claimed', '-inf', whole(now), 'LIMIT', 0, 128)) do
  local record = redis.call('GET', P .. 'k:' .. task)
  if record then
    local tenant, user, score = fields(record)
    place(task, tenant, user, score, 0, now)
    join_user(tenant, user)
    end_claim(task, record, false)
  end
  redis.call('ZREM', P .. 'claimed', task)
end

local popped, claimed, refill = {}, {}, {}
local max = tonumber(ARGV[2])
-- By user: how many heads are left, and whether it was asked if the database has more.
local left, asked = {}, {}
-- Each turn pops a task or removes something empty; the bound only guards against a fault.
for _ = 1, max * 2 + 64 do
  if #popped >= max * 2 then
    break
  end
  local tenant = lowest(P .. 'active')
  if not tenant then
    break
  end
  local user = lowest(tenant_key(tenant) .. ':users')
  if not user then
    leave_tenant(tenant)
  else
    local own = user_key(tenant, user)
    left[own] = left[own] or redis.call('ZCARD', own .. ':tasks')
    local task = redis.call('ZPOPMIN', own .. ':tasks')[1]
    if not task then
      leave_user(tenant, user)
    else
      left[own] = left[own] - 1
      count(tenant, -1)
      local record = redis.call('GET', P .. 'k:' .. task)
      if record then
        local _, _, _, weight = fields(record)
        claimed[#claimed + 1] = whole(claim_until)
        claimed[#claimed + 1] = task
        take_turns(tenant, user, weight, claim_until)
        popped[#popped + 1] = task
        popped[#popped + 1] = record
      end
      if left[own] == 0 then
        leave_user(tenant, user)
      end
      if left[own] <= HEADS_LOW and not asked[own] then
        asked[own] = true
        if redis.call('HDEL', own, 'more') == 1 then
          refill[#refill + 1] = tenant
          refill[#refill + 1] = user
        end
      end
    end
  end
end
many(claimed, 'ZADD', P .. 'claimed')

redis.call('DEL', last)
if #popped + #refill > 0 then
  redis.call('RPUSH', last, ARGV[5], #refill)
  for _, list in ipairs({ refill, popped }) do
    if #list > 0 then
      redis.call('RPUSH', last, unpack(list))
    end
  end
  redis.call('PEXPIRE', last, ARGV[3])
end

touch(P .. 'active')
touch(P .. 'timers')
touch(P .. 'claimed')
touch(P .. 'n')
finish()
if redis.call('EXISTS', P .. 'active', P .. 'timers') == 0 then
  -- Nothing waits: what is left of the count is what expired uncounted.
  redis.call('DEL', P .. 'n')
end

local due = -1
for _, zset in ipairs({ P .. 'timers', P .. 'claimed' }) do
  local _, at = lowest(zset)
  if at and (due < 0 or at - now < due) then
    due = math.max(0, at - now)
  end
end
return { redis.call('EXISTS', P .. 'ready'), due, refill, popped }
