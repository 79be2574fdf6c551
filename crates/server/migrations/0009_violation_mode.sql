-- In which mode the rule was: soft limits and quotas are marked as such. Empty in rows of older versions, which know `shadow` only.
alter table rate_limit_violation add column mode text;
