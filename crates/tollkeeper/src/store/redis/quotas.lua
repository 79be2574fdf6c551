-- read_quotas(batch, at, now): `batch[at]` is how many, then for each follow its algorithm and numbers:
--   1 bucket: limit, tag, token_whole, token_part, denominator, full_whole, full_part
--   2 fixed_window, 3 sliding_window_counter, 4 sliding_window_log, 5 concurrency: limit, period
--   6 bucket with former paces: how many, then each of them, the oldest first, as in 1 and when it ended; then as in 1
--   7 fixed_window of a calendar: limit, how many starts of windows, and these, in order
-- Returns their functions and the position after them; or nil and an error if `now` is not in the windows of a calendar.
-- The caller then has to name others: nothing was read or written.

local function read_quotas(batch, at, now)
  local quotas = {}
  local count = batch[at]
  at = at + 1
  for i = 1, count do
    local algorithm, limit, period = batch[at], batch[at + 1], batch[at + 2]
    if algorithm == 1 or algorithm == 6 then
      local formers_at
      at = at + 1
      if algorithm == 6 then
        formers_at = at
        at = at + 1 + 8 * batch[at]
      end
      quotas[i] = bucket(
        batch[at], batch[at + 1], batch[at + 2], batch[at + 3], batch[at + 4], batch[at + 5], batch[at + 6],
        formers_at and batch, formers_at
      )
      at = at + 7
    elseif algorithm == 7 then
      local last = at + 2 + period
      quotas[i] = calendar_window(limit, batch, at + 3, last, now)
      if not quotas[i] then
        return nil, redis.error_reply(format("TOLLKEEPERTIME %d", now))
      end
      at = last + 1
    else
      local law = (algorithm == 2 and fixed_window) or (algorithm == 3 and sliding_counter) or log
      quotas[i] = law(limit, period, algorithm == 5)
      at = at + 3
    end
  end
  return quotas, at
end
