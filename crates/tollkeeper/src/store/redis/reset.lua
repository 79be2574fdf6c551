-- Resets a state. That refunds all estimates charged to it before, and the counted refunds say so.
--
-- KEYS: the state, and the key that counts its refunds (refunds.lua).
-- Returns whether there was one.

local removed = redis.call("DEL", KEYS[1])
local refunds = read_refunds(KEYS[2])
if refunds then
  add_refund(KEYS[2], refunds, 0, 0, 1099511627776)
end
return removed
