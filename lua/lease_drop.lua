-- Removes leases of one provider account that are still their owner's.
--
-- KEYS[1..]    one lease each
-- ARGV[1..]    per lease: fencing token
--
-- Reply        how many were removed

local own = {}
for i = 1, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and string.match(held, '"fencing_token":(%d+)') == ARGV[i] then
    own[#own + 1] = KEYS[i]
  end
end
return many(own, 'DEL')
