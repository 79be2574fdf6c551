-- Records that an instance is alive, and counts those that are.
--
-- KEYS[1]: the set of instances.
-- ARGV[1]: the name of this one.
-- ARGV[2]: after how many milliseconds without a heartbeat an instance no longer counts.
-- Returns how many there are.

local now = redis.call("TIME")
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now_ms - ARGV[2])
redis.call("ZADD", KEYS[1], now_ms, ARGV[1])
redis.call("PEXPIRE", KEYS[1], ARGV[2])
return redis.call("ZCARD", KEYS[1])
