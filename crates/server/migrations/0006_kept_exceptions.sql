-- A copy of the exceptions for single keys, which live in Redis: it can restart empty while no instance runs that knows
-- them. One row, with the version that Redis gave them.
create table rate_limit_kept_exceptions (
    only_row   boolean primary key default true check (only_row),
    -- When the first one was made, and when they were last changed, in microseconds since 1970.
    born       bigint not null,
    changed    bigint not null,
    -- JSON. Not jsonb, which takes no key with a zero character in it.
    exceptions text not null,
    written_at timestamptz not null default now()
);
