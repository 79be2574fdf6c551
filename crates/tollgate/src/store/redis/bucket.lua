-- token_bucket, gcra and leaky_bucket: the twin of algorithm/bucket.rs and pace.rs.
--
-- State: the moment at which the bucket is full again. A decimal number of microseconds (which Redis keeps as an
-- integer), or "b", 7 bytes of microseconds and 4 bytes of parts when it is not whole.

local function bucket(limit, token_whole, token_part, denominator, full_whole, full_part)
  -- What is missing at `now`: whole microseconds and parts, or nil when nothing is.
  local function debt(value, now)
    local full_at, part
    if find(value, "^%d+$") then
      full_at, part = value + 0, 0
    else
      full_at, part = read(value, 98, 12) -- b
    end
    if full_at and full_at >= now and full_at < EXACT then
      -- A rate that changed has another denominator: less than a microsecond, rounded against the client.
      return full_at - now, part < denominator and part or denominator - 1
    end
  end

  -- That debt with `tokens` more of it, at most the limit.
  local function add(whole, part, tokens)
    whole = whole + token_whole * tokens
    if token_part > 0 then
      local parts = token_part * tokens
      local carry = floor(parts / denominator)
      whole, part = whole + carry, part + parts - carry * denominator
      if part >= denominator then
        return whole + 1, part - denominator
      end
    end
    return whole, part
  end

  local function fits(whole, part, tokens)
    whole, part = add(whole, part, tokens)
    return whole < full_whole or (whole == full_whole and part <= full_part)
  end

  -- How many of `count` requests of `cost` pass, whether a jumped clock needs repair, and the debt.
  local function view(value, now, cost, count)
    local whole, part
    if value then
      whole, part = debt(value, now)
    end
    if not whole then
      whole, part = 0, 0
    end
    local all = cost * count
    -- Parts are less than a microsecond a token: mostly all fit with whole ones in their place, and need no closer look.
    if whole + (token_whole + 1) * all < full_whole or (all <= limit and fits(whole, part, all)) then
      return count, false, whole, part
    elseif fits(whole, part, 0) then
      -- How many whole tokens fit: the division is off by less than one, and its neighbours put it right.
      local room = (full_whole - whole) + (full_part - part) / denominator
      local tokens = floor(room / (token_whole + token_part / denominator))
      if tokens >= limit then
        tokens = limit
      elseif fits(whole, part, tokens + 1) then
        tokens = tokens + 1
      end
      if not fits(whole, part, tokens) then
        tokens = tokens - 1
      end
      local passing = floor(tokens / cost)
      return passing < count and passing or count, false, whole, part
    end
    -- Two full buckets ahead: the clock jumped, and the bucket is empty as of now.
    local ahead_whole, ahead_part = add(full_whole, full_part, limit)
    if whole > ahead_whole or (whole == ahead_whole and part >= ahead_part) then
      return 0, true, full_whole, full_part
    end
    return 0, false, whole, part
  end

  -- The state with `amount` charged to that debt, and when it ends. Buckets that were full end together.
  local known_at, known_text
  local function charge(now, amount, whole, part)
    whole, part = add(whole, part, amount)
    local full_at = now + whole
    if part == 0 then
      if full_at ~= known_at then
        known_at, known_text = full_at, format("%d", full_at)
      end
      return known_text, full_at
    end
    return pack_bytes(">BI7I4", 98, full_at, part), full_at + 1
  end

  return { limit = limit, denominator = denominator, view = view, charge = charge, debt = debt, add = add }
end
