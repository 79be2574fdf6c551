-- Decides many requests in one call, and writes each changed state once. Must match verdict.rs.
--
-- KEYS: one per state; those that are strings first, then those that are logs.
-- ARGV[1]: the time in microseconds, or "" for the server's.
-- ARGV[2]: MessagePack, an array of integers: how many of the keys are strings, the quotas (see quotas.lua), then
--   entries up to the end. An entry is `count` equal requests: count (negative for a peek), how many charges, and for
--   each charge its key, its quota and its cost. The quota is negative for a shadow rule; for a rule that denies only
--   together with the others of its kind it has ALTERNATIVE added. A request charges a key once, and within a call a key
--   always has the same quota.
--   Consecutive entries that differ only in their key, with consecutive keys, are written as one: 0, how many, count,
--   the first key, quota, cost; only for an enforced rule without a log, and a cost that may pass.
-- Returns one flat list: each key's state before the call, the time, and for each entry whose requests did not all
--   pass its number and how many did, the first ones. From these `decide` in Rust computes every answer, so answers
--   are equal to the bit and the reply is small.
--
-- Equal requests at the same moment are one sum: as many pass as fit into what is left, and the rest writes nothing.
-- A shadow rule counts as many of those that passed as fit into its own limit, and so does each of several
-- alternatives, of which one must have room. The only trace of a denial is the repair of a clock jump.

local now = time(ARGV[1])
local batch = cmsgpack.unpack(ARGV[2])
local keys, strings = KEYS, batch[1]
local quotas, at = read_quotas(batch, 2, now)
if not quotas then
  return at
end
local states = strings > 0 and call("MGET", unpack(keys, 1, strings)) or {}
local current, ends, reply = {}, {}, states
local ALTERNATIVE = 1048576

-- The quota of a rule that does not deny by itself.
local function law_of(quota)
  return quotas[quota < 0 and -quota or quota - ALTERNATIVE]
end

-- Decides an entry of any kind, whose charges start at `at`. Returns how many of its requests pass. `seen` holds five
-- values per charge: how many of it pass, and the other results of `view`.
local seen = { 0, 0, 0, 0, 0 }
local function decide(at, count, charges)
  local is_peek = count < 0
  if is_peek then
    count = -count
  end
  local first, passed, most = at, count, nil
  for i = 1, 5 * charges, 5 do
    local key, quota, cost = batch[at], batch[at + 1], batch[at + 2]
    at = at + 3
    local law = quotas[quota] or law_of(quota)
    local state = current[key]
    if state == nil then
      state = states[key]
      if law.is_log then
        state = law.open(keys[key], now)
        current[key] = state
      end
    end
    local fits = count
    if cost > law.limit then
      fits = 0
    elseif cost > 0 then
      fits, seen[i + 1], seen[i + 2], seen[i + 3], seen[i + 4] = law.view(state, now, cost, count)
    end
    seen[i] = fits
    if quota > ALTERNATIVE then
      most = most and most > fits and most or fits
    elseif quota > 0 and fits < passed then
      passed = fits
    end
  end
  if most and most < passed then
    passed = most
  end
  local charged = is_peek and 0 or passed

  for i = 1, 5 * charges, 5 do
    local key, quota, cost = batch[first], batch[first + 1], batch[first + 2]
    first = first + 3
    local law = quotas[quota] or law_of(quota)
    if cost > 0 and cost <= law.limit then
      local fits, jumped = seen[i], seen[i + 1]
      local taken = fits < charged and fits or charged
      if taken > 0 or (fits == 0 and jumped) then
        current[key], ends[key] = law.charge(now, taken * cost, seen[i + 2], seen[i + 3], seen[i + 4])
      end
      if law.is_log and fits < count then
        -- Peeks are answered as if the ones before them had been charged.
        law.denied(current[key], is_peek and (fits + 1) * cost or cost)
      end
    end
  end
  return passed
end

reply[#keys + 1] = now

-- Records how many requests of an entry passed, if not all.
local entry, replied = 0, #keys + 1
local function answer(passed, count)
  entry = entry + 1
  if passed ~= count then
    reply[replied + 1], reply[replied + 2] = entry, passed
    replied = replied + 2
  end
end

local size = #batch
while at < size do
  local count, charges = batch[at], batch[at + 1]
  if count == 0 then
    -- A run of the most common entries, one enforced rule without a log: the same as `decide` in one pass. Keys without
    -- a state are all alike, and decided once.
    local first, quota, cost = batch[at + 3], batch[at + 4], batch[at + 5]
    count = batch[at + 2]
    local view, charge = quotas[quota].view, quotas[quota].charge
    local new_passed, new_state, new_end
    for key = first, first + charges - 1 do
      local state, passed = current[key] or states[key], new_passed
      if state or not new_passed then
        local jumped, one, two, three
        passed, jumped, one, two, three = view(state, now, cost, count)
        if passed > 0 or jumped then
          current[key], ends[key] = charge(now, passed * cost, one, two, three)
        end
        if not state then
          new_passed, new_state, new_end = passed, current[key], ends[key]
        end
      else
        current[key], ends[key] = new_state, new_end
      end
      if passed ~= count then
        reply[replied + 1], reply[replied + 2] = entry + key - first + 1, passed
        replied = replied + 2
      end
    end
    entry = entry + charges
    at = at + 6
  else
    answer(decide(at + 2, count, charges), count > 0 and count or -count)
    at = at + 2 + 3 * charges
  end
end

-- Writes the state of one key.
local function write(key)
  if key <= strings then
    call("PSETEX", keys[key], ttl(now, ends[key]), current[key])
  else
    current[key].law.store(current[key], now)
  end
end

-- The keys that would be new, by their numbers.
local function new_keys()
  local new = {}
  for key = 1, #keys do
    local state = current[key]
    local is_new = key <= strings and state and not states[key]
    if key > strings and state.changed then
      is_new = not state.exists and not state.foreign
    end
    if is_new then
      new[#new + 1] = format("%d", key)
    end
  end
  return new
end

-- Decimal numbers, as most states are, are written all at once: keys and states in turn. Packed states are shorter, and not
-- written so: from a script, Redis keeps the arguments of MSET in buffers as large as those of MGET, unless it stores
-- them as integers.
local packed, decimals, count = 16, {}, 0
for key = strings + 1, #keys do
  reply[key] = current[key].law.digest(current[key])
end
for key = 1, strings do
  local state = current[key]
  if state and #state > packed then
    decimals[count + 1], decimals[count + 2] = keys[key], state
    count = count + 2
  end
end
local has_begun = count > 2
if has_begun then
  local refused = write_first(new_keys, call, "MSET", unpack(decimals, 1, count))
  if refused then
    return refused
  end
  local expire, earliest, shift = expiry(now)
  local known_end, known_text
  for key = 1, strings do
    local state = current[key]
    if state and #state > packed then
      local at = ends[key]
      if at ~= known_end then
        known_end, known_text = at, format("%d", ((at > earliest and at or earliest) + shift) / 1000)
      end
      call(expire, keys[key], known_text)
    end
  end
  if count == 2 * #keys then
    return reply
  end
else
  packed = EXACT
end
for key = 1, #keys do
  local state = current[key]
  if state and (key > strings and state.changed or key <= strings and #state <= packed) then
    if has_begun then
      write(key)
    else
      local refused = write_first(new_keys, write, key)
      if refused then
        return refused
      end
      has_begun = true
    end
  end
end
return reply
