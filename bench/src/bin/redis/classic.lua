-- The token bucket that most people write: a hash of tokens and the time of the last look.
--
-- KEYS[1]: the bucket. ARGV: tokens a second, the most tokens, the cost. Returns whether it passed, and what is left.

local rate, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call("TIME")
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

local bucket = redis.call("HMGET", KEYS[1], "tokens", "ts")
local tokens, ts = tonumber(bucket[1]), tonumber(bucket[2])
if tokens == nil then
  tokens, ts = capacity, now
end
tokens = math.min(capacity, tokens + math.max(0, now - ts) * rate)

local allowed = 0
if tokens >= cost then
  tokens, allowed = tokens - cost, 1
end
redis.call("HSET", KEYS[1], "tokens", tokens, "ts", now)
redis.call("PEXPIRE", KEYS[1], math.ceil(capacity / rate * 1000))
return { allowed, math.floor(tokens) }
