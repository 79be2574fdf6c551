-- Alternatives: a request is denied only if all rules of this mode are over their limits.
alter table rate_limit_rule drop constraint rate_limit_rule_mode_is_known;
alter table rate_limit_rule add constraint rate_limit_rule_mode_is_known
    check (mode in ('enforce', 'shadow', 'annotate', 'quota'));
