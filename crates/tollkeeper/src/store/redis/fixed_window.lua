-- fixed_window: must match algorithm/fixed_window.rs.
--
-- State: "w", 7 bytes of microseconds at which the window starts, 4 bytes of admitted cost.

local function fixed_window(limit, period)
  -- How many of `count` requests of `cost` pass, whether a clock jump needs repair, and the window.
  local function view(value, now, cost, count)
    local start, admitted, repaired = now - now % period, 0, false
    local stored_start, stored_admitted
    if value then
      stored_start, stored_admitted = read(value, 119, 12)
    end
    if stored_start and stored_start >= start then
      admitted, repaired = stored_admitted, stored_start - now >= period
      start = repaired and start or stored_start
    end
    local passing = admitted < limit and floor((limit - admitted) / cost) or 0
    return passing < count and passing or count, repaired, start, admitted
  end

  -- The state with `amount` charged to that window, and when it ends.
  local function charge(_, amount, start, admitted)
    return pack_bytes(">BI7I4", 119, start, admitted + amount), start + period
  end

  return { limit = limit, period = period, kind = 119, length = 12, view = view, charge = charge }
end

-- The same with the windows of a calendar. `batch[first]` to `batch[last]` are the starts of windows in a row, around the time
-- that the caller expects. The state is the same. nil if `now` is in none of them whose next one is known too.
local function calendar_window(limit, batch, first, last, now)
  local own = first
  while own < last and now >= batch[own + 1] do
    own = own + 1
  end
  if now < batch[first] or own + 2 > last then
    return nil
  end
  local own_start, own_end = batch[own], batch[own + 1]

  -- When the window ends that started then. One from so far ahead that it is in none of these is kept for long enough.
  local function ends(start)
    for at = first, last do
      if batch[at] > start then
        return batch[at]
      end
    end
    return start + batch[last] - batch[first]
  end

  local function view(value, now, cost, count)
    local start, admitted, repaired = own_start, 0, false
    local stored_start, stored_admitted
    if value then
      stored_start, stored_admitted = read(value, 119, 12)
    end
    if stored_start and stored_start >= start then
      -- The next window may start a little in the future, a later one may not.
      admitted, repaired = stored_admitted, stored_start > own_end
      start = repaired and start or stored_start
    end
    local passing = admitted < limit and floor((limit - admitted) / cost) or 0
    return passing < count and passing or count, repaired, start, admitted
  end

  local function charge(_, amount, start, admitted)
    return pack_bytes(">BI7I4", 119, start, admitted + amount), ends(start)
  end

  return { limit = limit, kind = 119, length = 12, view = view, charge = charge }
end
