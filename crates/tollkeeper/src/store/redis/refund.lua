-- Refunds charges.
--
-- KEYS: for each refund the state, and the key that counts its refunds (refunds.lua).
-- ARGV[1]: the time in microseconds, or "" for the server's.
-- ARGV[2]: MessagePack, an array of integers: the quotas (see quotas.lua), then for each refund its quota and the
--   receipt: cost, at, nth, and 1 for a lease or 0. For a bucket nth is 0 where it is not known which charges it is of.
-- Returns for each refund 1, or 0 when nothing was left of the charge.

local batch = cmsgpack.unpack(ARGV[2])
local quotas, at = read_quotas(batch, 1, now)
if not quotas then
  return at
end
local refunded = {}

for i = at, #batch, 5 do
  local law, key = quotas[batch[i]], 2 * #refunded + 1
  local booked_at, is_known = batch[i + 2], batch[i + 3] > 0
  local done = refund(KEYS[key], law, unpack(batch, i + 1, i + 4))
  local refunds = done and batch[i + 4] == 0 and read_refunds(KEYS[key + 1])
  if refunds then
    -- Of unknown charges: it counts for all.
    add_refund(KEYS[key + 1], refunds, is_known and booked_at <= now and booked_at or 0, 0, batch[i + 1])
  end
  refunded[#refunded + 1] = done and 1 or 0
end
return refunded
