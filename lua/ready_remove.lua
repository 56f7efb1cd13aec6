-- Forgets tasks wherever they are: waiting, parked or claimed.
--
-- KEYS[1]      prefix of the queue (see lib_ready.lua)
-- ARGV[1]      ms that the queue's keys live untouched
-- ARGV[2]      'started' or 'gone'
-- ARGV[3..]    per task: task, tenant, user, attempt
--
-- Reply        how many were there
--
-- Why          A start uses its turn, also when the claim ran out before: then the turn was given back and is taken once more.
--              What is gone for another reason (canceled) leaves its turn to others.
--              A late word about an attempt says nothing of the next one, which waits or was popped by now.

local started = ARGV[2] == 'started'
local count_of, forgotten = 0, {}
for i = 3, #ARGV, 4 do
  local task, tenant, user, of_attempt = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local record = redis.call('GET', P .. 'k:' .. task)
  if not record or attempt(record) <= of_attempt then
    local was = record and end_claim(task, record, started)
    if not was and take_out(task, tenant, user) == 1 then
      was = true
      if started and record then
        local _, _, _, weight = fields(record)
        take_turns(tenant, user, weight, 0)
        end_turns(tenant, user, weight, true)
      end
    end
    forgotten[#forgotten + 1] = P .. 'k:' .. task
    count_of = count_of + (was and 1 or 0)
  end
end
many(forgotten, 'DEL')
finish()
return count_of
