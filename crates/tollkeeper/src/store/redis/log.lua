-- sliding_window_log and concurrency: must match algorithm/log.rs.
--
-- State: a list. First a header: "l", 4 bytes of the sum of all costs, 7 bytes at and 3 bytes nth of the last entry.
-- Then the entries, oldest first: 7 bytes of microseconds, 3 bytes nth, 3 bytes cost. It is a list, not a string,
-- because a decision touches only its ends, and Redis hashes every byte of a string that it passes to Lua.

local ENTRY, HEADER = ">I7I3I3", ">BI4I7I3"

-- at, nth and cost of an entry; anything else (the header) counts as before all time, at no cost.
local function read_entry(entry)
  if #entry == 13 then
    return unpack_bytes(ENTRY, entry)
  end
  return -1, 0, 0
end

-- The sum of all costs, and at and nth of the last entry; nil if it is not a header.
local function read_header(header)
  if header and #header == 15 and byte(header) == 108 then -- l
    return unpack_bytes(">I4I7I3", header, 2)
  end
end

-- `holds`: each request is an entry of its own, which can be released.
local function log(limit, period, holds)
  local law = { limit = limit, is_log = true, holds = holds }

  -- How many entries were taken at or before `expired`, by binary search.
  local function find_expired(key, length, expired)
    local low, high = 0, length
    while low < high do
      local middle = floor((low + high) / 2)
      if read_entry(call("LINDEX", key, middle + 1)) <= expired then
        low = middle + 1
      else
        high = middle
      end
    end
    return low
  end

  -- What is left of `total` after the entries taken at or before `expired`, and how many these are. `head` is the
  -- header and the oldest entries.
  local function expire(key, total, head, expired)
    local used, index, first = total, 0, 2
    while head[first] do
      for i = first, #head do
        local at, _, cost = read_entry(head[i])
        if at > expired then
          return used, index
        end
        used, index = used - cost, index + 1
      end
      if first == 2 then
        local length = call("LLEN", key) - 1
        if total == length then
          -- Every cost is 1, so many can expire at once without looking at each.
          index = find_expired(key, length, expired)
          return total - index, index
        end
      end
      head, first = call("LRANGE", key, index + 1, index + 64), 1
    end
    return used, index
  end

  local function next_nth(present)
    return #present > 0 and present[#present][1] + 1 or 0
  end

  -- The entries from `now` on, latest first, and at and nth of the one before them.
  local function read_tail(key, now)
    local tail, stop = {}, -1
    while true do
      local entries = call("LRANGE", key, stop - 15, stop)
      for i = #entries, 1, -1 do
        local at, nth = read_entry(entries[i])
        if at < now then
          return tail, at, nth
        end
        tail[#tail + 1] = entries[i]
      end
      if #entries < 16 then
        return tail, 0, 0
      end
      stop = stop - 16
    end
  end

  -- Sorts the tail into present and ahead, to insert requests before or among them.
  local function take_tail(state, now)
    state.jumped = state.last_at - now >= period
    state.tail, state.past_at, state.past_nth = read_tail(state.key, now)
    local present, ahead = state.present, state.ahead
    for i = #state.tail, 1, -1 do
      local at, nth, cost = read_entry(state.tail[i])
      state.past = state.past - cost
      if at > now and not state.jumped then
        ahead[#ahead + 1] = state.tail[i]
      else
        present[#present + 1] = { at > now and next_nth(present) or nth, cost }
      end
    end
  end

  -- Reads a log as of `now`:
  --   exists, foreign: there is one; there is something else
  --   total, used: the cost of all stored entries; of those that count, with what this call has charged
  --   expired: how many of the oldest entries have expired
  --   tail: the stored entries from `now` on, latest first, from a clock that stood still or ran back
  --   past, past_at, past_nth: the cost of those that count before the tail, and the last of them
  --   present, ahead: the tail and what this call adds, of this microsecond (nth and cost) and of later ones
  --   jumped: the tail reached a whole period ahead and is all in the present now, which is not yet stored
  --   need: how much has to expire until what was denied can pass
  function law.open(key, now)
    local head = redis.pcall("LRANGE", key, 0, 4)
    local state = { law = law, key = key, total = 0, used = 0, expired = 0, past = 0, need = 0 }
    state.present, state.ahead, state.tail = {}, {}, {}
    local total, last_at, last_nth = read_header(not head.err and head[1])
    if not total then
      state.foreign = head.err or head[1]
      return state
    end
    state.exists, state.total, state.last_at, state.last_nth = true, total, last_at, last_nth
    state.used, state.expired = expire(key, total, head, now - period)
    state.past, state.past_at, state.past_nth = state.used, last_at, last_nth
    if last_at >= now then
      take_tail(state, now)
    end
    return state
  end

  -- How many of `count` requests of `cost` pass, whether a clock jump needs repair, and what `charge` has to know.
  function law.view(state, _, cost, count)
    local passing = state.used < limit and floor((limit - state.used) / cost) or 0
    return passing < count and passing or count, state.jumped, state, cost
  end

  -- Records requests of `cost` that add up to `amount`.
  function law.charge(_, amount, state, cost)
    state.changed, state.jumped = true, false
    local present = state.present
    if amount == 0 then
      return state
    elseif holds then
      for nth = next_nth(present), next_nth(present) + amount / cost - 1 do
        present[#present + 1] = { nth, cost }
      end
    elseif present[1] and present[1][1] == 0 then
      present[1][2] = present[1][2] + amount
    else
      table.insert(present, 1, { 0, amount })
    end
    state.recorded, state.used = true, state.used + amount
    return state
  end

  -- Notes that `cost` does not pass now.
  function law.denied(state, cost)
    local need = state.used + cost - limit
    state.need = need > state.need and need or state.need
  end

  -- The entries of a shorter log that gives the same answers to this call: the oldest ones up to `need`, one for the
  -- rest before the tail, and the tail.
  function law.digest(state)
    local shown, rest, need, index = {}, state.past, state.need, state.expired + 1
    while need > 0 and rest > 0 do
      local entries = call("LRANGE", state.key, index, index + 15)
      for i = 1, #entries do
        local _, _, cost = read_entry(entries[i])
        shown[#shown + 1] = entries[i]
        need, rest = need - cost, rest - cost
        if need <= 0 or rest <= 0 then
          break
        end
      end
      if #entries < 16 then
        break
      end
      index = index + 16
    end
    if rest > 0 then
      shown[#shown + 1] = pack_bytes(ENTRY, state.past_at, state.past_nth, rest)
    end
    for i = #state.tail, 1, -1 do
      shown[#shown + 1] = state.tail[i]
    end
    return table.concat(shown)
  end

  -- Writes what was recorded, without what has expired by then.
  function law.store(state, now)
    local key, added = state.key, {}
    local last_at, last_nth = state.last_at, state.last_nth
    for i, entry in ipairs(state.present) do
      added[i] = pack_bytes(ENTRY, now, entry[1], entry[2])
      last_at, last_nth = now, entry[1]
    end
    for _, entry in ipairs(state.ahead) do
      added[#added + 1] = entry
      last_at, last_nth = read_entry(entry)
    end
    local total = state.recorded and state.used or state.total
    local expired = state.recorded and state.expired or 0
    local header = pack_bytes(HEADER, 108, total, last_at, last_nth)
    if state.foreign then
      call("DEL", key)
    end
    if not state.exists then
      call("RPUSH", key, header)
    elseif expired > 0 or #state.tail > 0 then
      call("LTRIM", key, expired + 1, -#state.tail - 1)
      call("LPUSH", key, header)
    else
      call("LSET", key, 0, header)
    end
    for i = 1, #added, 1000 do
      call("RPUSH", key, unpack(added, i, i + 999 < #added and i + 999 or #added))
    end
    -- A millisecond more: PEXPIRE by 1 deletes at once when its clock ticks between its two readings.
    call("PEXPIRE", key, ttl(now, last_at + period + 1000))
  end

  return law
end
