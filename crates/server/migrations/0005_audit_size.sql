-- Drops the oldest days until the violations take at most `most` bytes, indexes included. Today stays. Returns how many bytes
-- they take then. Any instance may call it at any time.
create function rate_limit_violation_trim(most bigint) returns bigint language plpgsql security definer as $$
declare
    today date := (now() at time zone 'utc')::date;
    size  bigint;
    name  text;
begin
    if most < 0 then
        raise exception 'most is %; say how many bytes of violations to keep, such as 1000000000', most;
    end if;
    perform pg_advisory_xact_lock(hashtextextended('rate_limit_violation_partitions', 0));
    loop
        select coalesce(sum(pg_total_relation_size(inhrelid)), 0) into size
            from pg_inherits where inhparent = 'rate_limit_violation'::regclass;
        exit when size <= most;
        select child.relname into name from pg_inherits join pg_class child on child.oid = inhrelid
            where inhparent = 'rate_limit_violation'::regclass and child.relname ~ '^rate_limit_violation_\d{8}$'
                and to_date(right(child.relname, 8), 'YYYYMMDD') < today
            order by child.relname limit 1;
        exit when name is null;
        execute format('drop table %I', name);
    end loop;
    return size;
end $$;

do $$
begin
    execute format('alter function rate_limit_violation_trim(bigint) set search_path = %I, pg_temp', current_schema());
    revoke all on function rate_limit_violation_trim(bigint) from public;
end $$;
