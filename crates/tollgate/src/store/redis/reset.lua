-- Forgets a state. Estimates that were charged to it before have been given back by this: what is counted says so.
--
-- KEYS: the state, and the key that counts what it was given back (watch.lua). Returns whether there was one.

local removed = redis.call("DEL", KEYS[1])
if redis.call("EXISTS", KEYS[2]) == 1 then
  redis.call("INCRBY", KEYS[2], "1099511627776")
end
return removed
