-- Returns popped tasks that could not start, with their turn.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per task: task, record, how, number
--              how: 'head' at once; 'user' or 'tenant' is parked for so many ms; 'task' waits until this instant
--
-- Reply        how many were still claimed and wait again
--
-- Why          The turn is given back whole, after the task waits again: one who has a task out takes part all the while, and
--              does not begin anew. Or a tenant with one task would lose its turn each time that the task is popped while
--              everything is full.
--              A late word about an attempt says nothing of the next one, which somebody else may have popped by now.

local now = clock_ms()
local returned = 0
for i = 2, #ARGV, 4 do
  local task, record, how, number = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local tenant, user, score = fields(record)
  local held = redis.call('GET', P .. 'k:' .. task)
  local later = held and attempt(held) > attempt(record)
  if held and not later and redis.call('ZSCORE', P .. 'claimed', task) then
    redis.call('SET', P .. 'k:' .. task, record, 'PX', KEEP)
    place(task, tenant, user, score, how == 'task' and number or 0, now)
    if how == 'head' then
      join_user(tenant, user)
    end
    end_claim(task, held, false)
    returned = returned + 1
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
  join_user(tenant, user)
end
finish()
return returned
