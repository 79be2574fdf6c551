-- What people did to single keys: who, when, until when and why. There are few, so one table without days will do.

create table rate_limit_action (
    action_id     bigint generated always as identity primary key,
    acted_at      timestamptz not null default now(),
    action        text not null,
    -- `*` for every rule that has the key.
    rule          text not null,
    bucket_key    text not null,
    -- Of a grant.
    granted_limit text,
    -- Null when it has no end, or is over at once.
    ends_at       timestamptz,
    reason        text,
    acted_by      text not null,
    instance      text,
    constraint rate_limit_action_action_is_known check (action in ('block', 'allow', 'grant', 'lift', 'reset'))
);

create index rate_limit_action_by_time on rate_limit_action (acted_at desc, action_id desc);
create index rate_limit_action_by_key on rate_limit_action (rule, bucket_key, acted_at desc);
