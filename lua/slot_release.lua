-- Gives the places of attempts under one tag back.
--
-- KEYS[1]      the broad set, KEYS[2] the narrow set
-- KEYS[3..4]   accounts only: submit bucket of the account, of the model; KEYS[5] probes under way
-- ARGV[1]      '1' to give the dispatch tokens, and a probe of the breaker, back too: nothing was sent
-- ARGV[2..]    members <task>.<attempt>
--
-- Reply        {how many were in the broad set, how many in the narrow one}
--
-- Why          Repeating it does nothing: the tokens go back only together with the member.

local unsent = ARGV[1] == '1'
local members = {}
for i = 2, #ARGV do
  members[i - 1] = ARGV[i]
end
if unsent and #KEYS > 4 then
  for _, member in ipairs(members) do
    if redis.call('ZSCORE', KEYS[1], member) then
      redis.call('ZREM', KEYS[5], member)
    end
  end
end
local broad, narrow = many(members, 'ZREM', KEYS[1]), many(members, 'ZREM', KEYS[2])
if unsent and broad > 0 then
  for i = 3, math.min(#KEYS, 4) do
    local state = redis.call('HMGET', KEYS[i], 'tokens', 'capacity')
    local tokens, capacity = tonumber(state[1] or ''), tonumber(state[2] or '')
    if tokens and capacity then
      redis.call('HSET', KEYS[i], 'tokens', string.format('%.9f', math.min(capacity, tokens + broad)))
    end
  end
end
return { broad, narrow }
