-- The one clock of a decision, for the scripts that this file is put in front of: Redis's own, in milliseconds. Whoever
-- asks from wherever, with whatever clock, is measured by the same.

local function clock_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
