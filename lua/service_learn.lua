-- Takes in for how long jobs of a model held their places.
--
-- KEYS[1]      hash of the model: mean, deviation (ms, as text)
-- ARGV[1]      ms that the hash lives untouched
-- ARGV[2]      how much of the figures each job is, as text
-- ARGV[3..]    ms, per job
--
-- Reply        {mean, deviation} in whole ms
--
-- Why          The figures follow the jobs like the round-trip time of a connection, so a model that becomes slower is known to
--              be after some ten jobs, whichever schedulers saw them. The first job counts for half its length as deviation.

local gain = tonumber(ARGV[2])
local state = redis.call('HMGET', KEYS[1], 'mean', 'deviation')
local mean, deviation = tonumber(state[1] or ''), tonumber(state[2] or '')
for i = 3, #ARGV do
  local sample = tonumber(ARGV[i])
  if not mean or not deviation then
    mean, deviation = sample, sample / 2
  else
    deviation = deviation + gain * (math.abs(sample - mean) - deviation)
    mean = mean + gain * (sample - mean)
  end
end
if not mean then
  return { 0, 0 }
end
redis.call('HSET', KEYS[1], 'mean', string.format('%.3f', mean), 'deviation', string.format('%.3f', deviation))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return { math.floor(mean), math.floor(deviation) }
