-- Settles charges at their actual cost: must match algorithm/settle.rs, which states the guarantees.
--
-- KEYS: for each charge the state, and the key that counts its refunds (refunds.lua).
-- ARGV[1]: the time in microseconds, or "" for the server's.
-- ARGV[2]: MessagePack, an array of integers: the quotas (see quotas.lua), then for each charge its quota, the receipt
--   (cost, at, nth, and for a bucket when it was full again after the charge: whole microseconds or -1, and parts),
--   what was counted before the charge, and the actual cost.
-- Returns for each charge how much was refunded.

-- The difference of two debts, of which the second is not larger.
local function less(law, whole, part, less_whole, less_part)
  if part < less_part then
    return whole - less_whole - 1, part + law.denominator - less_part
  end
  return whole - less_whole, part - less_part
end

-- How many tokens are refilled in this time, the last one perhaps in part; at most `most`.
local function tokens_begun(law, whole, part, most)
  local token_whole, token_part = law.add(0, 0, 1)
  -- The division is off by less than one, and comparing its neighbours corrects it.
  local tokens = floor((whole + part / law.denominator) / (token_whole + token_part / law.denominator)) - 1
  tokens = tokens > 0 and tokens or 0
  while tokens < most do
    local at_whole, at_part = law.add(0, 0, tokens)
    if at_whole > whole or (at_whole == whole and at_part >= part) then
      return tokens
    end
    tokens = tokens + 1
  end
  return most
end

-- The bucket with what is certainly left of an unused charge refunded, when it ends, and how many tokens that is; nil when
-- nothing is.
local function credited(law, value, unused, full_at, part, refunded)
  local whole, parts, foreign = law.debt(value, now)
  if not whole or foreign == 2 or full_at < now or refunded >= law.limit then
    return nil
  end
  local owed_whole, owed_part = full_at - now, part < law.denominator and part or law.denominator - 1
  local less_whole, less_part = law.add(0, 0, refunded)
  if owed_whole < less_whole or (owed_whole == less_whole and owed_part <= less_part) then
    return nil
  end
  owed_whole, owed_part = less(law, owed_whole, owed_part, less_whole, less_part)
  local most = unused < law.limit and unused or law.limit
  local most_whole, most_part = law.add(0, 0, most)
  if owed_whole > most_whole or (owed_whole == most_whole and owed_part > most_part) then
    owed_whole, owed_part = most_whole, most_part
  end
  if whole < owed_whole or (whole == owed_whole and parts <= owed_part) then
    owed_whole, owed_part = whole, parts
  end
  local state, ends = law.charge(now, 0, less(law, whole, parts, owed_whole, owed_part))
  return state, ends, tokens_begun(law, owed_whole, owed_part, most)
end

-- The bucket with `cost` more, as long as less than two full buckets are owed.
local function overdrawn_bucket(law, cost, whole, part)
  local full_whole, full_part = law.add(0, 0, law.limit)
  local most_whole, most_part = law.add(full_whole, full_part, law.limit)
  whole, part = law.add(whole, part, cost)
  if whole > most_whole or (whole == most_whole and part >= most_part) then
    whole, part = most_whole - 1, most_part
    if whole < full_whole or (whole == full_whole and part < full_part) then
      whole, part = full_whole, full_part
    end
  end
  return law.charge(now, 0, whole, part)
end

-- The window or counter with `cost` more, as long as a window counts at most twice the limit, a counter the limit.
local function overdrawn_window(law, cost, start, current, previous)
  local most = law.length == 16 and law.limit or 2 * law.limit
  most = most < 4294967295 and most or 4294967295
  local amount = current + cost < most and cost or most - current
  return law.charge(now, amount, start, current, previous)
end

-- Charges what was already used, whether it fits or not.
local function overdraw(key, law, cost)
  cost = cost < law.limit and cost or law.limit
  if cost == 0 then
    return
  elseif law.is_log then
    local state = law.open(key, now)
    local room = 2 * law.limit - state.used
    local amount = cost < room and cost or room
    if amount > 0 or state.jumped then
      law.charge(now, amount > 0 and amount or 0, state, amount)
      law.store(state, now)
    end
    return
  end
  local value = call("MGET", key)[1]
  local _, _, one, two, three = law.view(value, now, 1, 1)
  put(key, (law.debt and overdrawn_bucket or overdrawn_window)(law, cost, one, two, three))
end

-- Returns how much was refunded, and what counts as refunded when earlier charges are settled.
local function settle(key, law, charged, booked_at, nth, full_at, part, refunded, cost)
  if law.holds then
    local back = reduce(key, booked_at, nth, EXACT) and charged or 0
    return back, back
  elseif cost >= charged then
    overdraw(key, law, cost - charged)
    return 0, 0
  elseif refunded >= 1099511627776 then
    -- It was reset since: see reset.lua.
    return 0, 0
  end
  local unused = charged - cost
  if law.debt and full_at >= 0 then
    local value = call("MGET", key)[1]
    local state, ends, tokens
    if value then
      state, ends, tokens = credited(law, value, unused, full_at, part, refunded)
    end
    if state then
      put(key, state, ends)
      return tokens, unused
    end
  elseif refund(key, law, unused, booked_at, nth, 0) then
    return unused, unused
  end
  return 0, 0
end

local batch = cmsgpack.unpack(ARGV[2])
local quotas, at = read_quotas(batch, 1, now)
if not quotas then
  return at
end
local settled = {}
for i = at, #batch, 8 do
  local law, key = quotas[batch[i]], 2 * #settled + 1
  local charged, booked_at, nth, full_at, part, before, cost = unpack(batch, i + 1, i + 7)
  local refunds = read_refunds(KEYS[key + 1])
  local place = nth > 0 and before + nth or 0
  -- Lost, if they are not tracked: a bucket that may have got back anything gets nothing.
  local lost = full_at >= 0 and 1099511627776 or 0
  local refunded = refunds and sum_refunds(refunds, booked_at, place) - before or lost
  local back, counted = settle(KEYS[key], law, charged, booked_at, nth, full_at, part, refunded > 0 and refunded or 0, cost)
  if counted > 0 and refunds then
    local is_past = booked_at <= now
    add_refund(KEYS[key + 1], refunds, is_past and booked_at or 0, is_past and place or 0, counted)
  end
  settled[#settled + 1] = back
end
return settled
