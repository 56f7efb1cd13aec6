-- Forgets tasks wherever they are: waiting, parked or claimed.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2..]    per task: task, tenant, user
--
-- Reply        how many were there
--
-- Why          A claimed task that goes was started, so its turn is used.

local gone = 0
for i = 2, #ARGV, 3 do
  local task, tenant, user = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local record = redis.call('GET', P .. 'k:' .. task)
  local claimed = record and end_claim(task, record, true)
  if take_out(task, tenant, user) == 1 or claimed then
    gone = gone + 1
  end
  redis.call('DEL', P .. 'k:' .. task)
end
return gone
