-- Takes `cost` off the entry (`at`, `nth`) of a log, and removes the entry when nothing is left of it. Returns false
-- when there is no such entry.

local function find_entry(key, at, nth)
  local low, high = 1, call("LLEN", key) - 1
  while low <= high do
    local middle = floor((low + high) / 2)
    local entry = call("LINDEX", key, middle)
    local entry_at, entry_nth, cost = read_entry(entry)
    if entry_at == at and entry_nth == nth then
      return middle, entry, cost
    elseif entry_at < at or (entry_at == at and entry_nth < nth) then
      low = middle + 1
    else
      high = middle - 1
    end
  end
end

local function reduce(key, at, nth, cost)
  local total, last_at, last_nth = read_header(redis.pcall("LRANGE", key, 0, 0)[1])
  local index, entry, left
  if total then
    index, entry, left = find_entry(key, at, nth)
  end
  if not index then
    return false
  end
  local taken = cost < left and cost or left
  if taken < left then
    call("LSET", key, index, pack_bytes(ENTRY, at, nth, left - taken))
  elseif call("LLEN", key) == 2 then
    call("DEL", key)
    return true
  else
    call("LREM", key, 1, entry)
    last_at, last_nth = read_entry(call("LINDEX", key, -1))
  end
  call("LSET", key, 0, pack_bytes(HEADER, 108, total - taken, last_at, last_nth))
  return true
end
