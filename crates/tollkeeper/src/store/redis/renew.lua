-- Holds a concurrency slot for another whole period: must match Log::renew.
--
-- KEYS[1]: the log.
-- ARGV: the time in microseconds or "" for the server's; the quota's period; at and nth of the hold.
-- Returns at and nth of the hold that replaces it, or nil when it had expired or was released before.

local now, period, at, nth = time(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local total, last_at, last_nth = read_header(redis.pcall("LRANGE", KEYS[1], 0, 0)[1])
local index, entry, cost
if total and at + period > now then
  index, entry, cost = find_entry(KEYS[1], at, nth)
end
if not index then
  return false
end
-- Something was admitted after `now`, because the clock ran back: the hold stays unchanged.
if last_at > now or at == now then
  return { at, nth }
end
local next_nth = last_at == now and last_nth + 1 or 0
call("LREM", KEYS[1], 1, entry)
call("RPUSH", KEYS[1], pack_bytes(ENTRY, now, next_nth, cost))
call("LSET", KEYS[1], 0, pack_bytes(HEADER, 108, total, now, next_nth))
call("PEXPIRE", KEYS[1], ttl(now, now + period + 1000))
return { now, next_nth }
