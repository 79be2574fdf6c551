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
