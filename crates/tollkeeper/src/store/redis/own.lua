-- Takes places among those of an owner of reservations, for as long as a reservation lasts.
--
-- KEYS[1]: a sorted set of the places that are taken, by the millisecond in which they are free again.
-- ARGV: the reservation's name, how many places it takes, for how many milliseconds, and how many places there are.
-- Returns 1, or 0 if they do not fit.

local name, places, lifetime, most = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
if redis.call("ZCARD", KEYS[1]) + places > most then
  return 0
end
for place = 1, places do
  redis.call("ZADD", KEYS[1], now + lifetime, string.format("%s:%d", name, place))
end
if redis.call("PTTL", KEYS[1]) < lifetime then
  redis.call("PEXPIRE", KEYS[1], lifetime)
end
return 1
