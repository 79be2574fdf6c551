-- Starts tracking the refunds of keys, which settling an estimate needs to know.
--
-- KEYS: the keys that count refunds (refunds.lua).
-- ARGV[1]: for how many milliseconds they are kept at least.
-- Returns what each counts now.

local counts = {}
for i, key in ipairs(KEYS) do
  redis.call("SET", key, "", "NX")
  -- Redis 6.2 does not have PEXPIRE with GT.
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then
    redis.call("PEXPIRE", key, ARGV[1])
  end
  counts[i] = string.format("%d", sum_refunds(read_refunds(key) or {}))
end
return counts
