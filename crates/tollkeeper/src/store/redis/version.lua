-- The version of the exceptions: "BORN CHANGED", when their hash was made and when it was last changed, in microseconds.
-- A hash that was made later than what an instance knows has lost what was before.

-- Nothing when there is none. One that another program wrote counts as older than all.
local function read_version(key)
  local version = redis.call("HGET", key, "")
  if not version then
    return nil, 0
  end
  local born, changed = string.match(version, "^(%d+) (%d+)$")
  return (born or 0) + 0, (changed or 0) + 0
end

local function write_version(key, born, changed)
  redis.call("HSET", key, "", string.format("%.0f %.0f", born, changed))
end

-- Now, or just after a moment that lies ahead of the clock.
local function later_than(moment)
  local now = redis.call("TIME")
  return math.max(now[1] * 1000000 + now[2], moment + 1)
end
