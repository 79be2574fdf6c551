-- Counts from now on what keys are given back: whoever has charged an estimate must know when it is settled.
--
-- KEYS: where that is counted (refunds.lua). ARGV[1]: for how many milliseconds it is kept at least.
-- Returns what each counts now.

local counts = {}
for i, key in ipairs(KEYS) do
  redis.call("SET", key, "", "NX")
  -- PEXPIRE with GT is not in Redis 6.2.
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then
    redis.call("PEXPIRE", key, ARGV[1])
  end
  counts[i] = string.format("%d", sum_refunds(read_refunds(key) or {}))
end
return counts
