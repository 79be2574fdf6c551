-- token_bucket, gcra and leaky_bucket: must match algorithm/bucket.rs, pace.rs and former.rs.
--
-- State: the moment at which the bucket is full again, and the tag of the pace that wrote it. Whole microseconds are
-- a negative decimal number (which Redis keeps as an integer): "-", the microseconds, three digits of tag. Others are
-- "b", 7 bytes of microseconds, and 4 bytes with the tag in the highest 10 bits and the parts in the others; if these
-- are too many for 22 bits, 4 bytes of parts and 2 bytes of tag. Without a tag, from before there were any: a positive
-- number, or the tag 0.

local PARTS = 4194304

-- Converts a bucket that the pace of `tag` wrote to the pace `in_force`; nil if that pace is unknown. `formers[at]`
-- is how many former paces the rule has, and they follow, the oldest first: each as for `bucket`, and when it ended.
--
-- This is rarely needed, so its helpers are only created here.
local function carry_over(in_force, formers, at, tag, full_at, part)
  -- ceil(a * b / c) for a < c, all at most 2^51: bit by bit, so that everything stays exact.
  local function scale(a, b, c)
    local quotient, rest, bit = 0, 0, 2251799813685248
    while bit >= 1 do
      quotient, rest = quotient * 2, rest * 2
      if b >= bit then
        b, rest = b - bit, rest + a
      end
      while rest >= c do
        quotient, rest = quotient + 1, rest - c
      end
      bit = bit / 2
    end
    return rest > 0 and quotient + 1 or quotient
  end

  -- How long `tokens` take to refill at this pace, at most a whole bucket.
  local function lasting(pace, tokens)
    local parts = pace.token_part * tokens
    local whole = floor(parts / pace.denominator)
    return pace.token_whole * tokens + whole, parts - whole * pace.denominator
  end

  -- Converts a bucket from the `former` pace to the `next`, as of the moment the former ended.
  local function carry(former, next, full_at, part)
    local denominator, emptied_at = former.denominator, full_at - former.full_whole
    local moment = emptied_at > former.ended_at and emptied_at or former.ended_at
    if full_at < moment then
      return full_at, 0
    end
    local whole = full_at - moment
    part = part < denominator and part or denominator - 1
    if whole == former.full_whole and part > former.full_part then
      part = former.full_part
    end
    -- How many tokens are missing: the division is off by less than one, and comparing its neighbours corrects it.
    local missing = floor((whole + part / denominator) / (former.token_whole + former.token_part / denominator))
    missing = missing + 1 < former.limit and missing + 1 or former.limit
    local missing_whole, missing_part = lasting(former, missing)
    while missing_whole > whole or (missing_whole == whole and missing_part > part) do
      missing = missing - 1
      missing_whole, missing_part = lasting(former, missing)
    end
    if missing >= next.limit then
      return moment + next.full_whole, next.full_part
    end
    local share = (whole - missing_whole) * denominator + (part - missing_part)
    local from = former.token_whole * denominator + former.token_part
    share = scale(share, next.token_whole * next.denominator + next.token_part, from)
    local rest = floor(share / next.denominator)
    whole, part = lasting(next, missing)
    whole, part = whole + rest, part + share - rest * next.denominator
    if part >= next.denominator then
      whole, part = whole + 1, part - next.denominator
    end
    return moment + whole, part
  end

  local pace
  for i = at + 1, at + 8 * formers[at], 8 do
    local next = {
      limit = formers[i] + 0, token_whole = formers[i + 2] + 0, token_part = formers[i + 3] + 0,
      denominator = formers[i + 4] + 0, full_whole = formers[i + 5] + 0, full_part = formers[i + 6] + 0,
      ended_at = formers[i + 7] + 0,
    }
    if pace then
      full_at, part = carry(pace, next, full_at, part)
    end
    if pace or formers[i + 1] + 0 == tag then
      pace = next
    end
  end
  if pace then
    return carry(pace, in_force, full_at, part)
  end
end

-- `formers` and `at`: the rule's former paces (see `carry_over`), if there are any.
local function bucket(limit, tag, token_whole, token_part, denominator, full_whole, full_part, formers, at)
  -- The debt at `now`: whole microseconds and parts, or nil when there is none. Then 1 if a former pace of the rule
  -- wrote it, and 2 if an unknown one did.
  local function debt(value, now)
    local part, foreign
    local full_at, written_by = match(value, "^%-(%d+)(%d%d%d)$")
    if full_at then
      full_at, part, written_by = full_at + 0, 0, written_by + 0
    elseif find(value, "^%d+$") then
      full_at, part = value + 0, 0
    elseif #value == 12 and byte(value) == 98 then -- b
      full_at, part = unpack_bytes(">I7I4", value, 2)
      written_by = floor(part / PARTS)
      part = part - written_by * PARTS
    elseif #value == 14 and byte(value) == 98 then
      full_at, part, written_by = unpack_bytes(">I7I4I2", value, 2)
    end
    if not full_at or full_at >= EXACT then
      return nil
    end
    if written_by and written_by ~= tag and written_by ~= 0 then
      foreign = 2
      if formers then
        local in_force = {
          limit = limit, token_whole = token_whole, token_part = token_part, denominator = denominator,
          full_whole = full_whole, full_part = full_part,
        }
        local carried_at, carried_part = carry_over(in_force, formers, at, written_by, full_at, part)
        if carried_at then
          full_at, part, foreign = carried_at, carried_part, 1
        end
      end
    end
    if full_at < now then
      return nil
    end
    local whole = full_at - now
    part = part < denominator and part or denominator - 1
    if foreign == 2 and (whole > full_whole or (whole == full_whole and part > full_part)) then
      return full_whole, full_part, foreign
    end
    return whole, part, foreign
  end

  -- That debt with `tokens` more, at most the limit.
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

  -- How many of `count` requests of `cost` pass, whether a denial has to be written (a clock jump, or another pace),
  -- and the debt.
  local own = format("^%%-(%%d+)%03d$", tag)
  local function view(value, now, cost, count)
    local whole, part, foreign = 0, 0, nil
    if value then
      -- Nearly all are of this pace and of whole microseconds, which is read faster than by `debt`.
      local full_at = (match(value, own) or EXACT) + 0
      if full_at >= EXACT then
        whole, part, foreign = debt(value, now)
        if not whole then
          whole, part = 0, 0
        end
      elseif full_at > now then
        whole = full_at - now
      end
    end
    local all = cost * count
    -- Parts are less than a microsecond per token: usually all fit even with a whole one instead, and need no exact
    -- check.
    if whole + (token_whole + 1) * all < full_whole or (all <= limit and fits(whole, part, all)) then
      return count, false, whole, part
    elseif fits(whole, part, 0) then
      -- How many whole tokens fit: the division is off by less than one, and comparing its neighbours corrects it.
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
      return passing < count and passing or count, foreign, whole, part
    end
    -- Two full buckets ahead: the clock jumped, and the bucket is empty as of now.
    local ahead_whole, ahead_part = add(full_whole, full_part, limit)
    if whole > ahead_whole or (whole == ahead_whole and part >= ahead_part) then
      return 0, true, full_whole, full_part
    end
    return 0, foreign, whole, part
  end

  -- The state with `amount` charged to that debt, and when it ends. Buckets that were full end together.
  local known_at, known_text
  local text = format("-%%d%03d", tag)
  local function charge(now, amount, whole, part)
    if token_part == 0 then
      whole = whole + token_whole * amount
    else
      whole, part = add(whole, part, amount)
    end
    local full_at = now + whole
    if part == 0 then
      if full_at ~= known_at then
        known_at, known_text = full_at, format(text, full_at)
      end
      return known_text, full_at
    elseif part < PARTS then
      return pack_bytes(">BI7I4", 98, full_at, tag * PARTS + part), full_at + 1
    end
    return pack_bytes(">BI7I4I2", 98, full_at, part, tag), full_at + 1
  end

  return { limit = limit, denominator = denominator, view = view, charge = charge, debt = debt, add = add }
end
