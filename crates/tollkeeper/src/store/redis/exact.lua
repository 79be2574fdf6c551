-- Shared by all other files; comes first in every script.
--
-- Numbers are doubles, so integers are exact only below EXACT; Quota::new in Rust proves that nothing gets there.
-- floor(a / b) is the exact quotient whenever a + b < EXACT: the nearest double of a / b cannot reach the next
-- integer, which is at least 1 / b away. Numbers become text by format("%d"), which prints all 64 bits and drops a
-- fraction; tostring and .. would round to 14 digits.

local EXACT = 9007199254740992
local floor, format, byte, find, match = math.floor, string.format, string.byte, string.find, string.match
local pack_bytes, unpack_bytes = struct.pack, struct.unpack
local call = redis.call

-- A server that has reached `maxmemory` refuses the first write of a script that could need more, and lets later ones pass:
-- it cannot stop in the middle. So after a write that needs no memory, and here changes nothing, all others pass. For states
-- that exist: a client that is counted stays counted.
local function insist()
  redis.pcall("HDEL", KEYS[1], "")
end

-- Makes the first write of a call. A full server refuses it; then this returns an error with the keys that would be new, by
-- their numbers as text, and nothing was written. If `new_keys` returns none, it is written all the same.
local function write_first(new_keys, write, ...)
  local done, problem = pcall(write, ...)
  if done then
    return nil
  end
  local text = type(problem) == "table" and problem.err or problem
  if not string.find(text, "OOM", 1, true) then
    error(problem, 0)
  end
  local new = new_keys()
  if #new > 0 then
    return redis.error_reply("TOLLKEEPERFULL " .. table.concat(new, " "))
  end
  insist()
  write(...)
end

-- The time in microseconds: as given, or the server's.
local function time(given)
  if given ~= "" then
    return given + 0
  end
  local clock = call("TIME")
  return clock[1] * 1000000 + clock[2]
end

-- Milliseconds from `now` until `ends`, rounded up so that no state expires early. If the time is given (replay,
-- tests), the server's clock is unrelated to it: state then stays for at least a day, and decisions ignore what is
-- idle.
local shortest = ARGV[1] == "" and 1 or 86400000
local known_end, known_ttl
local function ttl(now, ends)
  -- Many keys in a row often end together, like windows and first requests.
  if ends ~= known_end then
    local ms = (ends - now + 999) / 1000
    known_end, known_ttl = ends, format("%d", ms > shortest and ms or shortest)
  end
  return known_ttl
end

-- The same for a state that is written by MSET or INCRBY: the command that makes it expire, the earliest end, and what to
-- add to an end to get the argument in microseconds. A moment costs Redis less than a time to live, but it is one of the server's
-- clock. If that moment has come meanwhile, Redis deletes the state, which by then has ended.
local function expiry(now)
  if shortest == 1 then
    return "PEXPIREAT", 0, 999
  end
  return "PEXPIRE", now + shortest * 1000, 999 - now
end

-- The numbers of a state that is `length` bytes long: the letter `kind`, 7 bytes of microseconds, and 4 bytes for
-- each other; nil if the value is something else.
local function read(value, kind, length)
  if #value == length and byte(value) == kind then
    local at, first, second = unpack_bytes(length == 12 and ">I7I4" or ">I7I4I4", value, 2)
    if at < EXACT then
      return at, first, length == 16 and second or 0
    end
  end
end
