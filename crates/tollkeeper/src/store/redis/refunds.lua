-- Which charges of a key were refunded, and how much, while estimates are unsettled: must match algorithm/refunds.rs.
-- Stored as "AT:AMOUNT/NTH,AT:AMOUNT/NTH", the earliest first, without "/NTH" where it is 0; without such a key, refunds are
-- not tracked.

-- A list of times, places among the charges of that time, and amounts in turn; nil when refunds are not tracked.
local function read_refunds(key)
  local value = redis.pcall("GET", key)
  if type(value) ~= "string" then
    return nil
  end
  local refunds, size = {}, 0
  for at, back, nth in string.gmatch(value, "(%d+):(%d+)/?(%d*)") do
    refunds[size + 1], refunds[size + 2], refunds[size + 3] = at + 0, nth == "" and 0 or nth + 0, back + 0
    size = size + 3
  end
  return refunds
end

-- The sum of those of charges that are not certainly after this one.
local function sum_refunds(refunds, charged, place)
  local sum = 0
  for i = 1, #refunds, 3 do
    local at, nth = refunds[i], refunds[i + 1]
    if at < charged or (at == charged and (place == 0 or nth <= place)) then
      sum = sum + refunds[i + 2]
    end
  end
  return sum
end

local function remove_refund(refunds, i)
  for _ = 1, 3 do
    table.remove(refunds, i)
  end
end

-- Makes one of two that follow each other, if the second is of charges right after the first.
local function join_refunds(refunds, i)
  local at, nth = refunds[i], refunds[i + 1]
  if at and at == refunds[i + 3] and nth > 0 and nth + refunds[i + 5] == refunds[i + 4] then
    refunds[i + 5] = refunds[i + 5] + refunds[i + 2]
    remove_refund(refunds, i)
  end
end

local function add_refund(key, refunds, charged, place, back)
  local i = 1
  while refunds[i] and (refunds[i] < charged or (refunds[i] == charged and refunds[i + 1] < place)) do
    i = i + 3
  end
  if refunds[i] == charged and refunds[i + 1] == place then
    refunds[i + 2] = refunds[i + 2] + back
  else
    table.insert(refunds, i, back)
    table.insert(refunds, i, place)
    table.insert(refunds, i, charged)
    join_refunds(refunds, i)
    join_refunds(refunds, i - 3)
  end
  if #refunds > 192 then
    refunds[2], refunds[3] = 0, refunds[3] + refunds[6]
    remove_refund(refunds, 4)
  end
  local parts = {}
  for i = 1, #refunds, 3 do
    local form = refunds[i + 1] > 0 and "%d:%d/%d" or "%d:%d"
    parts[#parts + 1] = string.format(form, refunds[i], refunds[i + 2], refunds[i + 1])
  end
  redis.call("SET", key, table.concat(parts, ","), "KEEPTTL")
end

