-- Gives the places of one attempt under one tag back.
--
-- KEYS[1]      the broad set, KEYS[2] the narrow set
-- KEYS[3..4]   accounts only: submit bucket of the account, of the model; KEYS[5] probes under way
-- ARGV[1]      member <task>.<attempt>
-- ARGV[2]      '1' to give the dispatch tokens, and a probe of the breaker, back too: nothing was sent
--
-- Reply        in how many sets the member was
--
-- Why          Repeating it does nothing: the tokens go back only together with the member.

local broad = redis.call('ZREM', KEYS[1], ARGV[1])
local narrow = redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[2] == '1' and broad == 1 then
  if #KEYS > 4 then
    redis.call('ZREM', KEYS[5], ARGV[1])
  end
  for i = 3, math.min(#KEYS, 4) do
    local state = redis.call('HMGET', KEYS[i], 'tokens', 'capacity')
    local tokens, capacity = tonumber(state[1] or ''), tonumber(state[2] or '')
    if tokens and capacity then
      redis.call('HSET', KEYS[i], 'tokens', string.format('%.9f', math.min(capacity, tokens + 1)))
    end
  end
end
return broad + narrow
