-- What most calls of charge_one.lua do, before anything else is set up: a bucket in which a token takes whole microseconds,
-- new or written by the same pace, that has room for the request. In all other cases this returns nothing, having
-- written nothing, and what follows decides.
--
-- It comes first because functions cost time when they are created: those of the other files take as long as a call of GET.

if ARGV[6] == "0" then
  local clock, now, shortest = ARGV[1], nil, 1
  if clock == "" then
    clock = redis.call("TIME")
    now = clock[1] * 1000000 + clock[2]
  else
    -- State stays for at least a day then: see `ttl`.
    now, shortest = clock + 0, 86400000
  end
  local key, tag, exact = KEYS[1], string.format("%03d", ARGV[4]), 9007199254740992
  -- An error if the key holds something that is not a string.
  local state = redis.pcall("GET", key)
  local full_at, written_by = now, tag
  if state then
    full_at, written_by = nil, nil
    if type(state) == "string" then
      full_at, written_by = string.match(state, "^%-(%d+)(%d%d%d)$")
      full_at = (full_at or exact) + 0
    end
  end
  if written_by == tag and full_at < exact then
    local whole = (full_at > now and full_at - now or 0) + ARGV[5] * ARGV[2]
    if whole <= ARGV[8] + 0 then
      local ms = (whole + 999) / 1000
      local lives, value = string.format("%d", ms > shortest and ms or shortest), string.format("-%d%s", now + whole, tag)
      -- A full server refuses it.
      if redis.pcall("PSETEX", key, lives, value).ok then
        return { state, now }
      end
    end
  end
end

