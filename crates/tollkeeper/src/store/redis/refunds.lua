-- Which charges of a key were refunded, and how much, while estimates are unsettled: must match algorithm/refunds.rs.
-- Stored as "AT:AMOUNT,AT:AMOUNT", the earliest first; without such a key, refunds are not tracked.

-- A list of times and amounts in turn; nil when refunds are not tracked.
local function read_refunds(key)
  local value = redis.pcall("GET", key)
  if type(value) ~= "string" then
    return nil
  end
  local refunds = {}
  for at, back in string.gmatch(value, "(%d+):(%d+)") do
    refunds[#refunds + 1], refunds[#refunds + 2] = at + 0, back + 0
  end
  return refunds
end

-- The sum of all of them, or of those of charges not after `charged`.
local function sum_refunds(refunds, charged)
  local sum = 0
  for i = 1, #refunds, 2 do
    if not charged or refunds[i] <= charged then
      sum = sum + refunds[i + 1]
    end
  end
  return sum
end

local function add_refund(key, refunds, charged, back)
  local place = 1
  while refunds[place] and refunds[place] < charged do
    place = place + 2
  end
  if refunds[place] == charged then
    refunds[place + 1] = refunds[place + 1] + back
  else
    table.insert(refunds, place, back)
    table.insert(refunds, place, charged)
  end
  if #refunds > 128 then
    refunds[2] = refunds[2] + refunds[4]
    table.remove(refunds, 3)
    table.remove(refunds, 3)
  end
  local parts = {}
  for i = 1, #refunds, 2 do
    parts[#parts + 1] = string.format("%d:%d", refunds[i], refunds[i + 1])
  end
  redis.call("SET", key, table.concat(parts, ","), "KEEPTTL")
end

