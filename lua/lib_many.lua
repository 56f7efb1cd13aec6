-- One command over many members, for the scripts that this file is put in front of: fewer, longer calls, each short enough
-- for Lua's stack.

-- Calls `...` with the list appended, in pieces; the sum of the replies.
local function many(list, ...)
  local sum = 0
  for from = 1, #list, 1000 do
    local call = { ... }
    for i = from, math.min(from + 999, #list) do
      call[#call + 1] = list[i]
    end
    sum = sum + redis.call(unpack(call))
  end
  return sum
end
