-- Forgets tasks wherever they are: waiting, parked or claimed.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per task: task, tenant, user
--
-- Reply        how many were there

local gone = 0
for i = 2, #ARGV, 3 do
  local task, tenant, user = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local was = redis.call('ZREM', P .. 'claimed', task) + take_out(task, tenant, user)
  redis.call('DEL', P .. 'k:' .. task)
  gone = gone + math.min(1, was)
end
return gone
