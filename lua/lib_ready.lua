-- The ready queue of one model, for the scripts that this file is put in front of. KEYS[1] is its prefix and ARGV[1] the
-- ms that its keys live untouched; every other name is made by appending to the prefix. What is noted here of counts, turns
-- and lives of keys is written once, by finish(): each script that changes anything ends with it.
--
--   active                zset  tenants that take part, by when it is their turn: vt + out
--   queue                 hash  latest (the latest virtual time at which a tenant was served)
--   n                     text  tasks that wait (parked ones too, claimed ones not)
--   timers                zset  what comes back by itself, by instant: t:<tenant> and u:<tenant>:<user> (parked),
--                               l:<tenant>:<user> (the user's earliest later task)
--   claimed               zset  tasks that were popped, by the instant at which they come back
--   ready                 text  the marker: every queued task of the model was added
--   t:<tenant>            hash  vt (virtual time: where it began, and the turns that it used since), out (turns of its tasks
--                               that are out), until (when the last of their claims runs out), latest (as above, of its
--                               users), w (weight), n
--   t:<tenant>:users      zset  its users that take part, by vt + out
--   u:<tenant>:<user>     hash  vt, out, until, more (the database has more than fits here)
--   u:<tenant>:<user>:tasks   zset  tasks that may go now, by score: creation less the priority's head start
--   u:<tenant>:<user>:later   zset  tasks that may not go yet, by instant
--   service               hash  how long jobs of the model take (see service_learn.lua)
--   k:<task>              text  tenant user score weight priority created not_before attempt
--
-- Fairness is start-time fair queueing on two levels. A turn of a tenant costs UNIT / weight, one of a user UNIT. A popped
-- task is out, and its turn is out with it; a start makes it a used one, and whoever puts the task back gives it back
-- whole. The lowest of vt + out goes next. So however many schedulers hold tasks for which they find no room, nobody who
-- comes meanwhile is measured by turns that were never used.
-- Whoever begins to take part begins where the others are who do, or at its own virtual time if that is later: a rest
-- saves nothing up, and leaving and coming back gains nothing. Who comes back while tasks of it are out does not begin anew.
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

-- What finish() writes: keys that live on, by tenant how many tasks more wait, turns by hash, and by zset who of it stands
-- elsewhere now.
local touched, counted, known, moved = {}, {}, {}, {}

local function touch(key)
  touched[key] = true
end

-- Writes where those stand whose turns ended, before anybody asks who is next.
local function write_moved(zset)
  for member, of in pairs(moved[zset] or {}) do
    redis.call('ZADD', zset, 'XX', whole(of.vt + of.out), member)
  end
  moved[zset] = nil
end

local function lowest(zset)
  write_moved(zset)
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2] or '')
end

local function is_due_later(member)
  return redis.call('ZSCORE', P .. 'timers', member)
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

-- What one turn costs a tenant of this weight.
local function turn_of(weight)
  return math.ceil(UNIT / weight)
end

-- Counts waiting tasks of a tenant and of the whole queue.
local function count(tenant, by)
  counted[tenant] = (counted[tenant] or 0) + by
end

-- Where one stands, the turns of its tasks that are out, until when they can be, and the latest turn among its own.
local function turns(hash)
  local of = known[hash]
  if not of then
    local read = redis.call('HMGET', hash, 'vt', 'out', 'until', 'latest')
    for i = 1, 4 do
      read[i] = tonumber(read[i] or '') or 0
    end
    of = { vt = read[1], out = read[2], over = read[3], latest = read[4] }
    known[hash] = of
  end
  return of
end

local function changed(hash, of)
  of.changed = true
  touch(hash)
end

local function finish()
  for zset in pairs(moved) do
    write_moved(zset)
  end
  for hash, of in pairs(known) do
    if of.changed then
      redis.call('HSET', hash, 'vt', whole(of.vt), 'out', whole(of.out), 'until', whole(of.over), 'latest', whole(of.latest))
    end
  end
  local sum = 0
  for tenant, by in pairs(counted) do
    redis.call('HINCRBY', tenant_key(tenant), 'n', by)
    touch(tenant_key(tenant))
    touch(P .. 'n')
    sum = sum + by
  end
  if sum ~= 0 then
    redis.call('INCRBY', P .. 'n', sum)
  end
  for key in pairs(touched) do
    redis.call('PEXPIRE', key, KEEP)
  end
end

-- Lets `member` take part in `zset`. `level` remembers the latest turn there, `hash_of(other)` names the turns of another.
local function begin(zset, member, hash_of, level)
  local hash = hash_of(member)
  local of = turns(hash)
  if of.out > 0 and of.over < clock_ms() then
    local _, over_next = lowest(P .. 'claimed')
    if not over_next or over_next > clock_ms() then
      -- Its last claim ran out, and all that did have come back: what is left of the count was lost with their keys.
      of.out = 0
    end
  end
  if of.out == 0 then
    local latest = turns(level).latest
    local following, at = lowest(zset)
    if following then
      -- Where the next one stands, or the latest turn if that is later, but never after that one's turn.
      latest = math.min(at, math.max(turns(hash_of(following)).vt, latest))
    end
    of.vt = math.max(of.vt, latest)
    changed(hash, of)
  end
  redis.call('ZADD', zset, whole(of.vt + of.out), member)
  touch(zset)
  touch(hash)
  touch(level)
end

local function join_tenant(tenant)
  local active = P .. 'active'
  if redis.call('ZSCORE', active, tenant) or is_due_later('t:' .. tenant) then
    return
  end
  if redis.call('EXISTS', tenant_key(tenant) .. ':users') == 1 then
    begin(active, tenant, tenant_key, P .. 'queue')
  end
end

-- Lets a user take part if it has a task that may go, and with it the tenant.
local function join_user(tenant, user)
  local users, own_key = tenant_key(tenant) .. ':users', user_key(tenant, user)
  if redis.call('EXISTS', own_key .. ':tasks') == 1 and not redis.call('ZSCORE', users, user)
    and not is_due_later('u:' .. tenant .. ':' .. user) then
    begin(users, user, function(other) return user_key(tenant, other) end, tenant_key(tenant))
  end
  join_tenant(tenant)
end

local function leave_tenant(tenant)
  redis.call('ZREM', P .. 'active', tenant)
end

local function leave_user(tenant, user)
  local users = tenant_key(tenant) .. ':users'
  redis.call('ZREM', users, user)
  if redis.call('EXISTS', users) == 0 then
    leave_tenant(tenant)
  end
end

-- Takes a turn: it is out, at the latest until the claim runs out.
local function take_turn(zset, member, hash, cost, claim_until)
  local of = turns(hash)
  of.out, of.over = of.out + cost, math.max(of.over, claim_until)
  changed(hash, of)
  redis.call('ZADD', zset, 'XX', 'INCR', cost, member)
end

local function take_turns(tenant, user, weight, claim_until)
  take_turn(P .. 'active', tenant, tenant_key(tenant), turn_of(weight), claim_until)
  take_turn(tenant_key(tenant) .. ':users', user, user_key(tenant, user), UNIT, claim_until)
end

-- Ends a turn that was out: it was used, or is given back.
local function end_turn(zset, member, hash, level, cost, used)
  local of = turns(hash)
  of.out = math.max(0, of.out - cost)
  if used then
    local all = turns(level)
    all.latest = math.max(all.latest, of.vt)
    changed(level, all)
    of.vt = of.vt + cost
  end
  moved[zset] = moved[zset] or {}
  moved[zset][member] = of
  changed(hash, of)
end

local function end_turns(tenant, user, weight, used)
  end_turn(P .. 'active', tenant, tenant_key(tenant), P .. 'queue', turn_of(weight), used)
  end_turn(tenant_key(tenant) .. ':users', user, user_key(tenant, user), tenant_key(tenant), UNIT, used)
end

-- Ends the claim of a task that was popped with this record: its turn was used, or is given back. Whether it was claimed.
local function end_claim(task, record, used)
  if redis.call('ZREM', P .. 'claimed', task) == 0 then
    return false
  end
  local tenant, user, _, weight = fields(record)
  end_turns(tenant, user, weight, used)
  return true
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
