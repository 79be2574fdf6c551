-- What any script has to do that keeps a state for each key: read all of them, write all of them, and let each expire.
--
-- KEYS: the states. ARGV: a state, and the moment in milliseconds at which it expires. Returns the states before.

local states = redis.call("MGET", unpack(KEYS))
local pairs = {}
for key = 1, #KEYS do
  pairs[2 * key - 1], pairs[2 * key] = KEYS[key], ARGV[1]
end
redis.call("MSET", unpack(pairs))
for key = 1, #KEYS do
  redis.call("PEXPIREAT", KEYS[key], ARGV[2])
end
return states
