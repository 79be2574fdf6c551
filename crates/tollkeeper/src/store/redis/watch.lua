-- Starts tracking the refunds of keys, which settling an estimate needs to know.
--
-- KEYS: the keys that count refunds (refunds.lua). Where the server is full and has no room for it, it does without.
-- ARGV[1]: for how many milliseconds they are kept at least.

for _, key in ipairs(KEYS) do
  redis.pcall("SET", key, "", "NX")
  -- Redis 6.2 does not have PEXPIRE with GT.
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then
    redis.call("PEXPIRE", key, ARGV[1])
  end
end
