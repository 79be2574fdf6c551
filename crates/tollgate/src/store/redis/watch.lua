-- Counts from now on what buckets are given back: whoever has charged an estimate must know when it is settled.
--
-- KEYS: the counters. ARGV[1]: for how many milliseconds they are kept at least.
-- Returns what each counts now.

local counts = {}
for i, key in ipairs(KEYS) do
  redis.call("SET", key, "0", "NX")
  -- PEXPIRE with GT is not in Redis 6.2.
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then
    redis.call("PEXPIRE", key, ARGV[1])
  end
  counts[i] = redis.call("GET", key)
end
return counts
