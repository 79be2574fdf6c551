-- Starts tracking the refunds of keys, which settling an estimate needs to know.
--
-- KEYS: the keys that count refunds (refunds.lua).
-- ARGV[1]: for how many milliseconds they are kept at least.
-- Returns what each counts now, or -1 where the server is full and has no room for it.

local counts = {}
for i, key in ipairs(KEYS) do
  redis.pcall("SET", key, "", "NX")
  -- Redis 6.2 does not have PEXPIRE with GT.
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then
    redis.call("PEXPIRE", key, ARGV[1])
  end
  local refunds = read_refunds(key)
  counts[i] = refunds and string.format("%d", sum_refunds(refunds)) or "-1"
end
return counts
