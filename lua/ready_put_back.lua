-- Returns popped tasks that could not start, with their turn.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per task, the one that was popped last first: task, record, how, number
--              how: 'head' at once; 'user' or 'tenant' is parked for so many ms; 'task' waits until this instant
--
-- Reply        how many were still claimed and wait again
--
-- Why          The turn is given back, but at most so far that the tenant (or user) goes once before the next one: turns
--              that many workers held at the same time must not let one tenant run ahead of another that came meanwhile.
--              One that was popped before another gets its turn back after it, when the other's is where it was.
--              Who had nothing else to pop has left by then, and comes back with that turn: or a tenant with one task would
--              lose it each time that the task is popped while everything is full.
--              A late word about an attempt says nothing of the next one, which somebody else may have popped by now.

local now = clock_ms()

-- Gives a turn back in a zset of virtual times, or in the remembered time of one who does not take part.
local function give_back(zset, member, hash, charge)
  local at = redis.call('ZSCORE', zset, member)
  local mine = tonumber(at or redis.call('HGET', hash, 'vt') or '') or 0
  local earlier = math.max(0, mine - charge)
  for i, other in ipairs(redis.call('ZRANGE', zset, 0, 1)) do
    if other ~= member then
      -- One more than a whole turn before it: after that turn it is the other's, also where names decide a tie.
      earlier = math.max(earlier, tonumber(redis.call('ZSCORE', zset, other)) - charge + 1)
      break
    end
  end
  -- Never later than it is.
  earlier = math.min(mine, earlier)
  if at then
    redis.call('ZADD', zset, whole(earlier), member)
  else
    redis.call('HSET', hash, 'vt', whole(earlier))
    touch(hash)
  end
end

local returned = 0
for i = 2, #ARGV, 4 do
  local task, record, how, number = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local tenant, user, score, weight = fields(record)
  local held = redis.call('GET', P .. 'k:' .. task)
  local later = held and attempt(held) > attempt(record)
  local due = false
  if not later and redis.call('ZREM', P .. 'claimed', task) == 1 and held then
    give_back(P .. 'active', tenant, tenant_key(tenant), math.ceil(UNIT / weight))
    give_back(tenant_key(tenant) .. ':users', user, user_key(tenant, user), UNIT)
    redis.call('SET', P .. 'k:' .. task, record, 'PX', KEEP)
    place(task, tenant, user, score, how == 'task' and number or 0, now)
    returned = returned + 1
    due = how == 'head'
  end
  if how == 'user' then
    redis.call('ZADD', P .. 'timers', whole(now + number), 'u:' .. tenant .. ':' .. user)
    touch(P .. 'timers')
    leave_user(tenant, user)
  elseif how == 'tenant' then
    redis.call('ZADD', P .. 'timers', whole(now + number), 't:' .. tenant)
    touch(P .. 'timers')
    leave_tenant(tenant)
  end
  join_user(tenant, user, due)
end
return returned
