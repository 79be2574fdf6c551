-- Like charge.lua for one request to one bucket: most calls of a limiter that is not busy.
--
-- KEYS[1]: the state.
-- ARGV: the time in microseconds or "" for the server's, the cost, the numbers of the bucket, and its former paces if
--   any (see quotas.lua: how many and which).
-- Returns as charge.lua does: the state before, the time, and the entry if it did not pass.

local now = time(ARGV[1])
local cost = ARGV[2] + 0
local law = bucket(
  ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0,
  ARGV[10] and ARGV, 10
)
-- MGET, because the key may hold something that is not a string.
local state = call("MGET", KEYS[1])[1]
local passed, jumped, whole, part = law.view(state, now, cost, 1)
if passed > 0 or jumped then
  local value, ends = law.charge(now, passed * cost, whole, part)
  local function new_keys()
    return state and {} or { "1" }
  end
  local refused = write_first(new_keys, call, "PSETEX", KEYS[1], ttl(now, ends), value)
  if refused then
    return refused
  end
end
if passed == 0 then
  return { state, now, 1, 0 }
end
return { state, now }
