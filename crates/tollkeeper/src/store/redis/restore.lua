-- Puts exceptions back that the server has lost, as an instance knows them.
--
-- KEYS[1]: the hash of exceptions; its field "" is its version (version.lua).
-- ARGV[1], ARGV[2]: the version that the instance knows: when the hash was made, and when it was last changed.
-- ARGV: the fields and values of all exceptions of that version.
-- Returns how many were put back, or -1 if nothing is missing: another instance was faster.

local key, known_born, known_changed = KEYS[1], ARGV[1] + 0, ARGV[2] + 0
local born, changed = read_version(key)
local is_older = born == known_born and changed < known_changed
if born and not is_older and born <= known_born then
  return -1
end
-- The same hash as before the latest changes, or none: it becomes what the instance knows. One that was made after the
-- loss keeps what it has.
if is_older then
  redis.call("DEL", key)
end
local restored = 0
for at = 3, #ARGV, 2 do
  restored = restored + redis.call("HSETNX", key, ARGV[at], ARGV[at + 1])
end
if born and not is_older then
  known_changed = later_than(math.max(changed, known_changed))
end
write_version(key, known_born, known_changed)
return restored
