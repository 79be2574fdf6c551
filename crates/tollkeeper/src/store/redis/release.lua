-- Releases a concurrency slot.
--
-- KEYS[1]: the log.
-- ARGV: the time in microseconds or "" for the server's; the quota's period; at and nth of the hold.
-- Returns 1 when the slot was still held, 0 when it had expired or was released before.

local now, period, at, nth = time(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
insist()
return reduce(KEYS[1], at, nth, EXACT) and at + period > now and 1 or 0
