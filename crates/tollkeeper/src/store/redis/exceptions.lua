-- Changes the exceptions of single keys, all or nothing.
--
-- KEYS[1]: the hash of exceptions; its field "" is its version (version.lua).
-- ARGV[1]: the maximum number.
-- ARGV[2]: how many to remove; then for each its field, and the value that it must still have or "" for any. Last, if
--   one is to be stored: its field and value.
-- Returns 1, or 0 when there is no room for it.

local key, at = KEYS[1], 3
for _ = 1, ARGV[2] + 0 do
  local field, expected = ARGV[at], ARGV[at + 1]
  at = at + 2
  if expected == "" or redis.call("HGET", key, field) == expected then
    redis.call("HDEL", key, field)
  end
end
if ARGV[at] then
  -- One more for the field "".
  if redis.call("HEXISTS", key, ARGV[at]) == 0 and redis.call("HLEN", key) > ARGV[1] + 0 then
    return 0
  end
  redis.call("HSET", key, ARGV[at], ARGV[at + 1])
end
local born, changed = read_version(key)
local at_us = later_than(changed)
write_version(key, born or at_us, at_us)
return 1
