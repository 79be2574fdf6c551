-- Who was denied, when and by what. A partition for each day (UTC): old days go by dropping a table, which takes no time
-- and leaves nothing to vacuum, however many rows a flood has written.

create table rate_limit_violation (
    violation_id   bigint generated always as identity,
    requested_at   timestamptz not null default now(),
    rule           text not null,
    bucket_key     text not null,
    user_id        text,
    ip             inet,
    endpoint       text,
    cost           bigint not null default 1,
    tokens_at_time bigint not null,
    -- Null when the request can never pass.
    retry_after    interval,
    -- How many violations this row stands for, where only some are written.
    count          integer not null default 1,
    -- The rule only watched: nobody was denied.
    shadow         boolean not null default false,
    instance       text,
    primary key (requested_at, violation_id),
    constraint rate_limit_violation_count_is_positive check (count > 0)
) partition by range (requested_at);

create index rate_limit_violation_by_rule on rate_limit_violation (rule, requested_at desc);
create index rate_limit_violation_by_user on rate_limit_violation (user_id, requested_at desc) where user_id is not null;
create index rate_limit_violation_by_ip on rate_limit_violation (ip, requested_at desc) where ip is not null;

-- Takes what belongs to no day that has been made, so that a row is never refused.
create table rate_limit_violation_other partition of rate_limit_violation default;

-- Makes the partitions of yesterday to the day after tomorrow, and drops the days that are older than `keep`. Returns
-- how many days were dropped. Any instance may call it at any time.
create function rate_limit_violation_partitions(keep interval) returns integer language plpgsql security definer as $$
declare
    today   date := (now() at time zone 'utc')::date;
    oldest  date := (now() at time zone 'utc' - keep)::date;
    day     date;
    name    text;
    dropped integer := 0;
begin
    if keep < interval '0' then
        raise exception 'keep is %, which is before now; say how long to keep violations, such as 30 days', keep;
    end if;
    perform pg_advisory_xact_lock(hashtextextended('rate_limit_violation_partitions', 0));
    for day in select today + offset_days from generate_series(-1, 2) offset_days loop
        name := 'rate_limit_violation_' || to_char(day, 'YYYYMMDD');
        -- Rows of this day that came before its partition keep it from being made; they stay where they are.
        if to_regclass(name) is null and not exists (
            select from rate_limit_violation_other
            where requested_at >= day::timestamp at time zone 'utc' and requested_at < (day + 1)::timestamp at time zone 'utc')
        then
            execute format('create table %I partition of rate_limit_violation for values from (%L) to (%L)',
                name, day::timestamp at time zone 'utc', (day + 1)::timestamp at time zone 'utc');
        end if;
    end loop;
    for name in
        select child.relname from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'rate_limit_violation'::regclass and child.relname ~ '^rate_limit_violation_\d{8}$'
            and to_date(right(child.relname, 8), 'YYYYMMDD') < oldest
    loop
        execute format('drop table %I', name);
        dropped := dropped + 1;
    end loop;
    delete from rate_limit_violation_other where requested_at < now() - keep;
    return dropped;
end $$;

do $$
begin
    execute format('alter function rate_limit_violation_partitions(interval) set search_path = %I, pg_temp', current_schema());
    revoke all on function rate_limit_violation_partitions(interval) from public;
end $$;
