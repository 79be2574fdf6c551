-- Refunds a charge: must match algorithm/receipt.rs, which states the guarantees.

local now = time(ARGV[1])
insist()

-- These return the state with the charge refunded and when it ends, or nil when nothing was left of the charge.

local function refund_bucket(law, value, cost, booked_at, nth, is_lease)
  local whole, part, foreign = law.debt(value, now)
  if foreign == 2 or (foreign and is_lease == 1) then
    return nil
  end
  local taken_whole, taken_part = law.add(0, 0, cost < law.limit and cost or law.limit)
  local refilled = now > booked_at and now - booked_at or 0
  if is_lease == 1 then
    -- Only if it has not been charged since: it still ends where the lease left it.
    if not whole or now + whole ~= booked_at or part ~= nth then
      return nil
    end
    refilled = 0
  elseif not whole or taken_whole < refilled or (taken_whole == refilled and taken_part == 0) then
    return nil
  end
  whole, part = whole - (taken_whole - refilled), part - taken_part
  if part < 0 then
    whole, part = whole - 1, part + law.denominator
  end
  if whole < 0 then
    whole, part = 0, 0
  end
  return law.charge(now, 0, whole, part)
end

local function refund_window(law, value, cost, start)
  local current_start, current, previous = read(value, law.kind, law.length)
  if current_start == start then
    current = current > cost and current - cost or 0
  elseif law.length == 16 and current_start == start + law.period then
    previous = previous > cost and previous - cost or 0
  else
    return nil
  end
  local state, ends = law.charge(now, 0, current_start, current, previous)
  return state, (current > 0 or previous > 0) and ends or now
end

local function put(key, state, ends)
  if ends > now then
    call("PSETEX", key, ttl(now, ends), state)
  else
    call("DEL", key)
  end
end

local function refund(key, law, cost, booked_at, nth, is_lease)
  if law.is_log then
    return reduce(key, booked_at, nth, cost)
  end
  local value = call("MGET", key)[1]
  local state, ends
  if value then
    state, ends = (law.debt and refund_bucket or refund_window)(law, value, cost, booked_at, nth, is_lease)
  end
  if not state then
    return false
  end
  put(key, state, ends)
  return true
end

