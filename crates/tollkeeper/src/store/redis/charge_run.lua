-- Like charge.lua for requests that differ only in their key, to a bucket in which a token takes whole microseconds: most
-- calls of a limiter that is busy.
--
-- KEYS: the states, at least two.
-- ARGV: the time in microseconds or "" for the server's, how many requests there are for each key, their cost, the numbers
--   of the bucket, and its former paces if any (see quotas.lua: how many and which).
-- Returns as charge.lua does: the states before, the time, and each entry of which not all passed, with how many did.

local now = time(ARGV[1])
local count, cost, tag = ARGV[2] + 0, ARGV[3] + 0, ARGV[5]
local token_whole, full_whole = ARGV[6] + 0, ARGV[9] + 0
local keys = KEYS
local states = call("MGET", unpack(keys))

-- A bucket that is not full, and stays within its limit: all requests pass, and the moment at which it is full again moves
-- by as much as for any other. Redis adds that to the number in the state, which needs no new text. Everything
-- else, `view` and `charge` do.
local amount = cost * count
local added = token_whole * amount
local own = format("^%%-([1-9]%%d*)%03d$", tag)
local before = added < EXACT / 1000 and now + full_whole - (token_whole + 1) * amount or 0

local reply, replied = states, #keys + 1
local ends, moved, texts, written = {}, {}, {}, 0
local law, has_moved, new_passed, new_text, new_end
if now < before then
  new_passed, new_text, new_end = count, format("-%d%03d", now + added, tag), now + added
end
for key = 1, #keys do
  local state, passed, text = states[key], count, nil
  local full_at = state and (match(state, own) or 0) + 0
  if not state and new_passed then
    -- Keys without a state are all alike.
    passed, text, ends[key] = new_passed, new_text, new_end
  elseif state and full_at > now and full_at < before then
    moved[key], ends[key], has_moved = true, full_at + added, true
  else
    law = law or bucket(
      ARGV[4] + 0, tag + 0, token_whole, ARGV[7] + 0, ARGV[8] + 0, full_whole, ARGV[10] + 0,
      ARGV[11] and ARGV, 11
    )
    local jumped, whole, part
    passed, jumped, whole, part = law.view(state, now, cost, count)
    if passed > 0 or jumped then
      text, ends[key] = law.charge(now, passed * cost, whole, part)
    end
    if not state then
      new_passed, new_text, new_end = passed, text, ends[key]
    end
  end
  if text then
    texts[written + 1], texts[written + 2] = keys[key], text
    written = written + 2
  end
  if passed ~= count then
    reply[replied + 1], reply[replied + 2] = key, passed
    replied = replied + 2
  end
end
reply[#keys + 1] = now

local function new_keys()
  local new = {}
  for key = 1, #keys do
    if ends[key] and not states[key] then
      new[#new + 1] = format("%d", key)
    end
  end
  return new
end

local has_begun = written > 0
local refused = has_begun and write_first(new_keys, call, "MSET", unpack(texts, 1, written))
if refused then
  return refused
end
local by = has_moved and format("-%d", added * 1000)
local expire, earliest, shift = expiry(now)
local known_end, known_text
for key = 1, #keys do
  local at = ends[key]
  if at then
    if moved[key] then
      if has_begun then
        call("INCRBY", keys[key], by)
      else
        -- It exists, as all others that are written.
        write_first(new_keys, call, "INCRBY", keys[key], by)
        has_begun = true
      end
    end
    if at ~= known_end then
      known_end, known_text = at, format("%d", ((at > earliest and at or earliest) + shift) / 1000)
    end
    call(expire, keys[key], known_text)
  end
end
return reply
