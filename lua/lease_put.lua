-- Writes or prolongs leases of one provider account.
--
-- KEYS[1..]    one lease each
-- ARGV[1]      'put' or 'renew'
-- ARGV[2]      ms to live
-- ARGV[3..]    per lease: fencing token, JSON object without expire_at
--
-- Reply        per lease 'ok', 'absent' (renew only), or the token of the other owner
--
-- Why          A lower token is an earlier owner and gives way. Renewing restores nothing: whether the owner still
--              owns is for PostgreSQL to say. Tokens are compared as numbers; PostgreSQL counts them from 1.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local expire_at = string.format('%.0f', now + tonumber(ARGV[2]))
local reply = {}
for i = 1, #KEYS do
  local token, json = ARGV[3 + (i - 1) * 2], ARGV[4 + (i - 1) * 2]
  local held = redis.call('GET', KEYS[i])
  local other = held and string.match(held, '"fencing_token":(%d+)')
  if not held and ARGV[1] == 'renew' then
    reply[i] = 'absent'
  elseif other and tonumber(other) > tonumber(token) then
    reply[i] = other
  else
    redis.call('SET', KEYS[i], string.sub(json, 1, -2) .. ',"expire_at":' .. expire_at .. '}', 'PX', ARGV[2])
    reply[i] = 'ok'
  end
end
return reply
