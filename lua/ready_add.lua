-- Adds tasks to a model's ready queue, idempotently.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per task: task, not_before in ms (0 none), record `tenant user score weight priority created not_before attempt`
--
-- Reply        per task: 1 added, 2 there already (waiting or claimed), 3 the user has 100 better heads
--
-- Why          Only heads are kept, so the queue's size is bounded by users and not by a flood. A better task (older, or
--              of higher priority) takes the place of the worst head, which then waits in the database like the rest.
--              Adding a task that is there also mends whatever keeps its user or tenant from taking part. A task that
--              comes with a later attempt than the one it was popped for went back to the queue since: its claim here
--              is over, though the word that said so was lost.

local now = clock_ms()
local reply, weights = {}, {}

-- How many tasks of a user are here, counted once.
local heads = {}
local function room_of(own)
  heads[own] = heads[own] or redis.call('ZCARD', own .. ':tasks') + redis.call('ZCARD', own .. ':later')
  return heads[own] < HEADS_MAX
end

-- Users who may have to take part, in the order of their first tasks.
local joining, joins = {}, {}
local function join_later(own, tenant, user)
  if not joins[own] then
    joins[own] = true
    joining[#joining + 1] = { tenant, user }
  end
end
local function join_all()
  for _, user in ipairs(joining) do
    join_user(user[1], user[2])
  end
  joining, joins = {}, {}
end

for i = 2, #ARGV, 3 do
  local task, not_before, record = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local tenant, user, score, weight = fields(record)
  local own = user_key(tenant, user)
  local held = redis.call('GET', P .. 'k:' .. task)
  if held and attempt(held) < attempt(record) then
    -- Whoever joins does so before anybody leaves: a tenant that is empty for a moment would begin anew.
    join_all()
    end_claim(task, held, true)
    take_out(task, tenant, user)
    heads[own] = nil
    redis.call('DEL', P .. 'k:' .. task)
    held = false
  end
  local there = held
    and (redis.call('ZSCORE', own .. ':tasks', task) or redis.call('ZSCORE', own .. ':later', task)
      or redis.call('ZSCORE', P .. 'claimed', task))
  if there then
    touch(P .. 'k:' .. task)
    touch(own .. ':tasks')
    touch(own .. ':later')
    touch(tenant_key(tenant) .. ':users')
    touch(tenant_key(tenant))
    touch(own)
    if redis.call('EXISTS', own .. ':later') == 1 then
      set_later_timer(tenant, user)
    end
    join_later(own, tenant, user)
    reply[#reply + 1] = 2
  else
    local room = room_of(own)
    if not room then
      redis.call('HSET', own, 'more', '1')
      touch(own)
      local worst = redis.call('ZRANGE', own .. ':tasks', -1, -1, 'WITHSCORES')
      if worst[1] and not_before <= now and tonumber(score) < tonumber(worst[2]) then
        take_out(worst[1], tenant, user)
        redis.call('DEL', P .. 'k:' .. worst[1])
        heads[own] = heads[own] - 1
        room = true
      end
    end
    if room then
      redis.call('SET', P .. 'k:' .. task, record, 'PX', KEEP)
      if weights[tenant] ~= weight then
        redis.call('HSET', tenant_key(tenant), 'w', weight)
        weights[tenant] = weight
      end
      place(task, tenant, user, score, not_before, now)
      heads[own] = heads[own] + 1
      join_later(own, tenant, user)
      reply[#reply + 1] = 1
    else
      reply[#reply + 1] = 3
    end
  end
end
join_all()
finish()
return reply
