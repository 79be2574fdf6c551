-- Forgets a state. Estimates that were charged to it before have been given back by this: what is counted says so.
--
-- KEYS: the state, and where it is counted what it was given back (refunds.lua). Returns whether there was one.

local removed = redis.call("DEL", KEYS[1])
local refunds = read_refunds(KEYS[2])
if refunds then
  add_refund(KEYS[2], refunds, 0, 1099511627776)
end
return removed
