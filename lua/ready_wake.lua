-- Lets parked users and tenants take part again.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per wake: tenant, user
--
-- Reply        how many were parked

local woken = 0
for i = 2, #ARGV, 2 do
  local tenant, user = ARGV[i], ARGV[i + 1]
  local parked = redis.call('ZREM', P .. 'timers', 't:' .. tenant, 'u:' .. tenant .. ':' .. user)
  if parked > 0 then
    woken = woken + parked
    join_user(tenant, user)
  end
end
finish()
return woken
