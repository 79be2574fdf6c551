-- sliding_window_counter: must match algorithm/sliding_counter.rs.
--
-- State: "c", 7 bytes of microseconds at which the current window starts, 4 bytes of cost admitted in it, 4 bytes of
-- cost admitted in the one before.

local function sliding_counter(limit, period)
  -- How many of `count` requests of `cost` pass, whether a clock jump needs repair, and the counter.
  local function view(value, now, cost, count)
    local window_start, repaired = now - now % period, false
    local start, current, previous
    if value then
      start, current, previous = read(value, 99, 16)
    end
    if not start then
      start, current, previous = window_start, 0, 0
    elseif start - now >= period then
      -- At the new time the previous window may seem more faded than it was, so it counts in full.
      start, current, previous, repaired = window_start, current + previous, 0, true
    elseif start < window_start then
      start, current, previous = window_start, 0, start + period == window_start and current or 0
    end
    -- The limit was lowered: products are exact only for counts within the limit.
    current = current < limit and current or limit
    previous = previous < limit and previous or limit

    -- How much of the previous window still counts, rounded up to a whole token.
    local weighted = previous * (now > start and period - (now - start) or period)
    local fading = floor(weighted / period)
    if fading * period < weighted then
      fading = fading + 1
    end
    local room = limit - current - fading
    local passing = room > 0 and floor(room / cost) or 0
    return passing < count and passing or count, repaired, start, current, previous
  end

  -- The state with `amount` charged to that counter, and when it ends.
  local function charge(_, amount, start, current, previous)
    current = current + amount
    return pack_bytes(">BI7I4I4", 99, start, current, previous), start + (current > 0 and 2 * period or period)
  end

  return { limit = limit, period = period, kind = 99, length = 16, view = view, charge = charge }
end
