-- Records that an instance is alive, and counts the others.
--
-- KEYS[1]: the set of instances, by the time of their last heartbeats.
-- ARGV[1]: the name of this one.
-- ARGV[2]: after how many milliseconds without a heartbeat an instance is not alive.
-- ARGV[3]: after how many milliseconds without a heartbeat it is forgotten.
-- Returns how many are known, how many of them are alive, and 1 if this one was not known before.

local now = redis.call("TIME")
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now_ms - ARGV[3])
local is_new = redis.call("ZADD", KEYS[1], now_ms, ARGV[1])
redis.call("PEXPIRE", KEYS[1], ARGV[3])
return { redis.call("ZCARD", KEYS[1]), redis.call("ZCOUNT", KEYS[1], now_ms - ARGV[2], "+inf"), is_new }
