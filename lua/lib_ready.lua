-- The ready queue of one model, for the scripts that this file is put in front of. KEYS[1] is its prefix and ARGV[1] the
-- ms that its keys live untouched; every other name is made by appending to the prefix.
--
--   active                zset  tenants that take part, by virtual time
--   vt                    text  virtual time of the tenant that was served last
--   n                     text  tasks that wait (parked ones too, claimed ones not)
--   timers                zset  what comes back by itself, by instant: t:<tenant> and u:<tenant>:<user> (parked),
--                               l:<tenant>:<user> (the user's earliest later task)
--   claimed               zset  tasks that were popped, by the instant at which they come back
--   ready                 text  the marker: every queued task of the model was added
--   t:<tenant>            hash  vt (virtual time when it last took part), base (of the user served last), w (weight), n
--   t:<tenant>:users      zset  its users that take part, by virtual time
--   u:<tenant>:<user>     hash  vt, more (the database has more than fits here)
--   u:<tenant>:<user>:tasks   zset  tasks that may go now, by score: creation less the priority's head start
--   u:<tenant>:<user>:later   zset  tasks that may not go yet, by instant
--   service               hash  how long jobs of the model take (see service_learn.lua)
--   k:<task>              text  tenant user score weight priority created not_before attempt
--
-- Fairness is start-time fair queueing on two levels. Serving a tenant puts its virtual time forward by UNIT / weight,
-- serving a user of it by UNIT; the lowest goes next. Whoever starts to take part begins at the lowest virtual time
-- among those who do, or at its own if that is later: a rest saves nothing up, and leaving and coming back gains nothing.
-- Only who comes back with a task that was popped in vain begins at its own in any case: that turn is still due.
-- Virtual times are whole numbers and stay exact for 9 * 10^11 turns.

local P = KEYS[1]
local KEEP = ARGV[1]
local UNIT = 10000
local HEADS_MAX = 100
local HEADS_LOW = 50

local function clock_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function tenant_key(tenant)
  return P .. 't:' .. tenant
end

local function user_key(tenant, user)
  return P .. 'u:' .. tenant .. ':' .. user
end

local function touch(key)
  redis.call('PEXPIRE', key, KEEP)
end

local function lowest(zset)
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2] or '')
end

local function is_due_later(member)
  return redis.call('ZSCORE', P .. 'timers', member)
end

-- Counts waiting tasks of a tenant and of the whole queue.
local function count(tenant, by)
  redis.call('HINCRBY', tenant_key(tenant), 'n', by)
  redis.call('INCRBY', P .. 'n', by)
end

-- Where one begins whose own virtual time is `own`, when `others` is the lowest of those who take part, or `last` that of the
-- one served last. `due`: with a turn that is still due.
local function beginning(own, others, last, due)
  own = tonumber(own or '') or 0
  if due then
    return whole(own)
  end
  return whole(math.max(own, others or tonumber(last or '') or 0))
end

local function join_tenant(tenant, due)
  local active = P .. 'active'
  if redis.call('ZSCORE', active, tenant) or is_due_later('t:' .. tenant) then
    return
  end
  if redis.call('EXISTS', tenant_key(tenant) .. ':users') == 0 then
    return
  end
  local _, others = lowest(active)
  local own = redis.call('HGET', tenant_key(tenant), 'vt')
  redis.call('ZADD', active, beginning(own, others, redis.call('GET', P .. 'vt'), due), tenant)
  touch(active)
  touch(tenant_key(tenant))
end

-- Lets a user take part if it has a task that may go, and with it the tenant.
local function join_user(tenant, user, due)
  local users, own_key = tenant_key(tenant) .. ':users', user_key(tenant, user)
  if redis.call('EXISTS', own_key .. ':tasks') == 1 and not redis.call('ZSCORE', users, user)
    and not is_due_later('u:' .. tenant .. ':' .. user) then
    local _, others = lowest(users)
    local own, last = redis.call('HGET', own_key, 'vt'), redis.call('HGET', tenant_key(tenant), 'base')
    redis.call('ZADD', users, beginning(own, others, last, due), user)
    touch(users)
  end
  join_tenant(tenant, due)
end

local function leave_tenant(tenant)
  local at = redis.call('ZSCORE', P .. 'active', tenant)
  if at then
    redis.call('HSET', tenant_key(tenant), 'vt', at)
    touch(tenant_key(tenant))
    redis.call('ZREM', P .. 'active', tenant)
  end
end

local function leave_user(tenant, user)
  local users = tenant_key(tenant) .. ':users'
  local at = redis.call('ZSCORE', users, user)
  if at then
    redis.call('HSET', user_key(tenant, user), 'vt', at)
    touch(user_key(tenant, user))
    redis.call('ZREM', users, user)
  end
  if redis.call('EXISTS', users) == 0 then
    leave_tenant(tenant)
  end
end

-- Sets the timer of a user's earliest later task.
local function set_later_timer(tenant, user)
  local member = 'l:' .. tenant .. ':' .. user
  local _, earliest = lowest(user_key(tenant, user) .. ':later')
  if earliest then
    redis.call('ZADD', P .. 'timers', whole(earliest), member)
    touch(P .. 'timers')
  else
    redis.call('ZREM', P .. 'timers', member)
  end
end

-- Makes a task wait: among those that may go, or among the later ones.
local function place(task, tenant, user, score, not_before, now)
  local own = user_key(tenant, user)
  if not_before > now then
    redis.call('ZADD', own .. ':later', whole(not_before), task)
    touch(own .. ':later')
    set_later_timer(tenant, user)
  else
    redis.call('ZADD', own .. ':tasks', score, task)
    touch(own .. ':tasks')
  end
  count(tenant, 1)
  touch(tenant_key(tenant))
  touch(P .. 'n')
end

-- Takes a task out wherever it waits; whether it did.
local function take_out(task, tenant, user)
  local own = user_key(tenant, user)
  local waited = redis.call('ZREM', own .. ':tasks', task)
  if redis.call('ZREM', own .. ':later', task) == 1 then
    waited = 1
    set_later_timer(tenant, user)
  end
  if waited == 1 then
    count(tenant, -1)
    if redis.call('EXISTS', own .. ':tasks') == 0 then
      leave_user(tenant, user)
    end
  end
  return waited
end

-- Tenant, user, score, weight of a record.
local function fields(record)
  local tenant, user, score, weight = string.match(record, '^(%S+) (%S+) (%S+) (%d+)')
  return tenant, user, score, math.max(1, tonumber(weight or '') or 1)
end

-- The attempt of a record.
local function attempt(record)
  return tonumber(string.match(record, '(%d+)$') or '') or 0
end
