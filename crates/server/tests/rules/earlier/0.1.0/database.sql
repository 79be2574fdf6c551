-- PostgreSQL database dump
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.rate_limit_rule_complete() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
    if tg_op = 'INSERT' then
        if new.position is null then
            select coalesce(max(position), 0) + 1 into new.position from rate_limit_rule;
        end if;
    elsif new is distinct from old then
        new.updated_at := now();
    end if;
    return new;
end $$;
CREATE FUNCTION public.rate_limit_rule_lock() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
    perform from rate_limit_rule_head for update;
    return null;
end $$;
CREATE FUNCTION public.rate_limit_rule_new_version() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
declare
    made bigint;
begin
    select version into made from rate_limit_rule_head where transaction_id = pg_current_xact_id();
    if found then
        return made;
    end if;
    update rate_limit_rule_head set version = version + 1, transaction_id = pg_current_xact_id() returning version into made;
    insert into rate_limit_rule_version (version, changed_by, action, message) values (
        made,
        coalesce(nullif(current_setting('tollkeeper.changed_by', true), ''), session_user),
        coalesce(nullif(current_setting('tollkeeper.action', true), ''), 'sql'),
        nullif(current_setting('tollkeeper.message', true), ''));
    perform pg_notify('tollkeeper_rules', made::text);
    return made;
end $$;
CREATE FUNCTION public.rate_limit_rule_record() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
    insert into rate_limit_rule_change (version, rule_id, name, before, after) values (
        rate_limit_rule_new_version(),
        case tg_op when 'DELETE' then old.rule_id else new.rule_id end,
        case tg_op when 'DELETE' then old.name else new.name end,
        case tg_op when 'INSERT' then null else to_jsonb(old) end,
        case tg_op when 'DELETE' then null else to_jsonb(new) end);
    return null;
end $$;
CREATE FUNCTION public.rate_limit_rule_record_truncate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
    if exists (select from rate_limit_rule) then
        insert into rate_limit_rule_change (version, rule_id, name, before)
            select rate_limit_rule_new_version(), rule_id, name, to_jsonb(rule) from rate_limit_rule rule;
    end if;
    return null;
end $$;
CREATE FUNCTION public.rate_limit_violation_partitions(keep interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $_$
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
end $_$;
CREATE FUNCTION public.rate_limit_violation_trim(most bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $_$
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
end $_$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.rate_limit_action (
    action_id bigint NOT NULL,
    acted_at timestamp with time zone DEFAULT now() NOT NULL,
    action text NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    granted_limit text,
    ends_at timestamp with time zone,
    reason text,
    acted_by text NOT NULL,
    instance text,
    key_by text,
    CONSTRAINT rate_limit_action_action_is_known CHECK ((action = ANY (ARRAY['block'::text, 'allow'::text, 'grant'::text, 'lift'::text, 'reset'::text])))
);
ALTER TABLE public.rate_limit_action ALTER COLUMN action_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_action_action_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_kept_exceptions (
    only_row boolean DEFAULT true NOT NULL,
    born bigint NOT NULL,
    changed bigint NOT NULL,
    exceptions text NOT NULL,
    written_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT rate_limit_kept_exceptions_only_row_check CHECK (only_row)
);
CREATE TABLE public.rate_limit_rule (
    rule_id bigint NOT NULL,
    name text NOT NULL,
    "position" bigint NOT NULL,
    key_pattern text NOT NULL,
    scope text,
    rate bigint NOT NULL,
    period interval,
    burst_capacity bigint,
    algorithm text DEFAULT 'token_bucket'::text NOT NULL,
    plan text,
    match_conditions jsonb DEFAULT '{}'::jsonb NOT NULL,
    cost jsonb DEFAULT '1'::jsonb NOT NULL,
    mode text DEFAULT 'enforce'::text NOT NULL,
    on_store_failure text DEFAULT 'local'::text NOT NULL,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    is_active boolean DEFAULT true NOT NULL,
    description text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT rate_limit_rule_algorithm_is_known CHECK ((algorithm = ANY (ARRAY['token_bucket'::text, 'gcra'::text, 'leaky_bucket'::text, 'fixed_window'::text, 'sliding_window_log'::text, 'sliding_window_counter'::text, 'concurrency'::text]))),
    CONSTRAINT rate_limit_rule_burst_is_positive CHECK ((burst_capacity > 0)),
    CONSTRAINT rate_limit_rule_match_conditions_is_object CHECK ((jsonb_typeof(match_conditions) = 'object'::text)),
    CONSTRAINT rate_limit_rule_mode_is_known CHECK ((mode = ANY (ARRAY['enforce'::text, 'shadow'::text, 'annotate'::text, 'quota'::text]))),
    CONSTRAINT rate_limit_rule_on_store_failure_is_known CHECK ((on_store_failure = ANY (ARRAY['local'::text, 'open'::text, 'closed'::text]))),
    CONSTRAINT rate_limit_rule_options_is_object CHECK ((jsonb_typeof(options) = 'object'::text)),
    CONSTRAINT rate_limit_rule_period_is_countable CHECK ((period <= '100 years'::interval)),
    CONSTRAINT rate_limit_rule_period_is_positive CHECK ((period > '00:00:00'::interval)),
    CONSTRAINT rate_limit_rule_rate_is_positive CHECK ((rate > 0))
);
CREATE TABLE public.rate_limit_rule_change (
    change_id bigint NOT NULL,
    version bigint NOT NULL,
    rule_id bigint NOT NULL,
    name text NOT NULL,
    before jsonb,
    after jsonb
);
ALTER TABLE public.rate_limit_rule_change ALTER COLUMN change_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_rule_change_change_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_rule_head (
    only_row boolean DEFAULT true NOT NULL,
    version bigint NOT NULL,
    transaction_id xid8 NOT NULL,
    CONSTRAINT rate_limit_rule_head_only_row_check CHECK (only_row)
);
ALTER TABLE public.rate_limit_rule ALTER COLUMN rule_id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.rate_limit_rule_rule_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_rule_version (
    version bigint NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    changed_by text NOT NULL,
    action text NOT NULL,
    message text
);
CREATE TABLE public.rate_limit_violation (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
)
PARTITION BY RANGE (requested_at);
CREATE TABLE public.rate_limit_violation_20261115 (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
);
CREATE TABLE public.rate_limit_violation_20261116 (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
);
CREATE TABLE public.rate_limit_violation_20261117 (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
);
CREATE TABLE public.rate_limit_violation_20261118 (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
);
CREATE TABLE public.rate_limit_violation_other (
    violation_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    rule text NOT NULL,
    bucket_key text NOT NULL,
    user_id text,
    ip inet,
    endpoint text,
    cost bigint DEFAULT 1 NOT NULL,
    tokens_at_time bigint NOT NULL,
    retry_after interval,
    count integer DEFAULT 1 NOT NULL,
    shadow boolean DEFAULT false NOT NULL,
    instance text,
    blocked boolean DEFAULT false NOT NULL,
    blocked_until timestamp with time zone,
    blocked_by text,
    mode text,
    CONSTRAINT rate_limit_violation_count_is_positive CHECK ((count > 0))
);
ALTER TABLE public.rate_limit_violation ALTER COLUMN violation_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_violation_violation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.tollkeeper_migration (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);
ALTER TABLE ONLY public.rate_limit_violation ATTACH PARTITION public.rate_limit_violation_20261115 FOR VALUES FROM ('2026-11-15 00:00:00+00') TO ('2026-11-16 00:00:00+00');
ALTER TABLE ONLY public.rate_limit_violation ATTACH PARTITION public.rate_limit_violation_20261116 FOR VALUES FROM ('2026-11-16 00:00:00+00') TO ('2026-11-17 00:00:00+00');
ALTER TABLE ONLY public.rate_limit_violation ATTACH PARTITION public.rate_limit_violation_20261117 FOR VALUES FROM ('2026-11-17 00:00:00+00') TO ('2026-11-18 00:00:00+00');
ALTER TABLE ONLY public.rate_limit_violation ATTACH PARTITION public.rate_limit_violation_20261118 FOR VALUES FROM ('2026-11-18 00:00:00+00') TO ('2026-11-19 00:00:00+00');
ALTER TABLE ONLY public.rate_limit_violation ATTACH PARTITION public.rate_limit_violation_other DEFAULT;
-- Data for Name: rate_limit_action; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_kept_exceptions; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_rule; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule VALUES (1, 'everybody', 1, 'global', 'global', 5000, '00:00:01', 8000, 'token_bucket', NULL, '{}', '1', 'enforce', 'open', '{"lease": "auto"}', true, 'the whole service', '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (3, 'login', 3, '{ip}', 'ip', 5, '00:01:00', NULL, 'sliding_window_log', NULL, '{"path": "/login"}', '1', 'enforce', 'closed', '{}', true, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (4, 'monthly', 4, '{tenant}', 'tenant', 100000, '30 days', NULL, 'fixed_window', NULL, '{}', '1', 'shadow', 'local', '{"calendar": "month", "timezone": "Europe/Berlin", "anchor_day": 15}', true, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (5, 'exports', 5, '{tenant}', 'tenant', 3, NULL, NULL, 'concurrency', NULL, '{}', '1', 'enforce', 'local', '{"hold": "10min"}', true, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (6, 'either', 6, '{api_key|ip}', 'ip', 1, '00:00:02', 4, 'leaky_bucket', NULL, '{}', '1', 'enforce', 'local', '{}', false, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (7, 'counter', 7, '{ip}', 'ip', 600, '00:01:00', NULL, 'sliding_window_counter', NULL, '{}', '"tokens"', 'enforce', 'local', '{"headers": false}', true, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.702551+00');
INSERT INTO public.rate_limit_rule VALUES (2, 'free-user', 2, '{user_id}', 'user', 20, '00:00:01', 50, 'token_bucket', 'free', '{"ip": "!10.0.0.0/8", "path": ["/api/*", "!/api/health"]}', '2', 'enforce', 'local', '{}', true, NULL, '2026-11-16 13:11:56.702551+00', '2026-11-16 13:11:56.840146+00');
-- Data for Name: rate_limit_rule_change; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (1, 1, 1, 'everybody', NULL, '{"cost": 1, "mode": "enforce", "name": "everybody", "plan": null, "rate": 5000, "scope": "global", "period": "00:00:01", "options": {"lease": "auto"}, "rule_id": 1, "position": 1, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": "the whole service", "key_pattern": "global", "burst_capacity": 8000, "match_conditions": {}, "on_store_failure": "open"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (2, 1, 2, 'free-user', NULL, '{"cost": 2, "mode": "enforce", "name": "free-user", "plan": "free", "rate": 10, "scope": "user", "period": "00:00:01", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{user_id}", "burst_capacity": 50, "match_conditions": {"ip": "!10.0.0.0/8", "path": ["/api/*", "!/api/health"]}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (3, 1, 3, 'login', NULL, '{"cost": 1, "mode": "enforce", "name": "login", "plan": null, "rate": 5, "scope": "ip", "period": "00:01:00", "options": {}, "rule_id": 3, "position": 3, "algorithm": "sliding_window_log", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{ip}", "burst_capacity": null, "match_conditions": {"path": "/login"}, "on_store_failure": "closed"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (4, 1, 4, 'monthly', NULL, '{"cost": 1, "mode": "shadow", "name": "monthly", "plan": null, "rate": 100000, "scope": "tenant", "period": "30 days", "options": {"calendar": "month", "timezone": "Europe/Berlin", "anchor_day": 15}, "rule_id": 4, "position": 4, "algorithm": "fixed_window", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{tenant}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (5, 1, 5, 'exports', NULL, '{"cost": 1, "mode": "enforce", "name": "exports", "plan": null, "rate": 3, "scope": "tenant", "period": null, "options": {"hold": "10min"}, "rule_id": 5, "position": 5, "algorithm": "concurrency", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{tenant}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (6, 1, 6, 'either', NULL, '{"cost": 1, "mode": "enforce", "name": "either", "plan": null, "rate": 1, "scope": "ip", "period": "00:00:02", "options": {}, "rule_id": 6, "position": 6, "algorithm": "leaky_bucket", "is_active": false, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{api_key|ip}", "burst_capacity": 4, "match_conditions": {}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (7, 1, 7, 'counter', NULL, '{"cost": "tokens", "mode": "enforce", "name": "counter", "plan": null, "rate": 600, "scope": "ip", "period": "00:01:00", "options": {"headers": false}, "rule_id": 7, "position": 7, "algorithm": "sliding_window_counter", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{ip}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (8, 2, 2, 'free-user', '{"cost": 2, "mode": "enforce", "name": "free-user", "plan": "free", "rate": 10, "scope": "user", "period": "00:00:01", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.702551+00:00", "description": null, "key_pattern": "{user_id}", "burst_capacity": 50, "match_conditions": {"ip": "!10.0.0.0/8", "path": ["/api/*", "!/api/health"]}, "on_store_failure": "local"}', '{"cost": 2, "mode": "enforce", "name": "free-user", "plan": "free", "rate": 20, "scope": "user", "period": "00:00:01", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:11:56.702551+00:00", "updated_at": "2026-11-16T13:11:56.840146+00:00", "description": null, "key_pattern": "{user_id}", "burst_capacity": 50, "match_conditions": {"ip": "!10.0.0.0/8", "path": ["/api/*", "!/api/health"]}, "on_store_failure": "local"}');
-- Data for Name: rate_limit_rule_head; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_head VALUES (true, 2, '747');
-- Data for Name: rate_limit_rule_version; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_version VALUES (1, '2026-11-16 13:11:56.702551+00', 'ann', 'apply', 'moved from the file');
INSERT INTO public.rate_limit_rule_version VALUES (2, '2026-11-16 13:11:56.840146+00', 'tollkeeper', 'sql', NULL);
-- Data for Name: rate_limit_violation_20261115; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_violation_20261116; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_violation_20261117; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_violation_20261118; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: rate_limit_violation_other; Type: TABLE DATA; Schema: public; Owner: -
-- Data for Name: tollkeeper_migration; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.tollkeeper_migration VALUES (1, 'rules', '2026-11-16 13:11:56.605099+00', true, '\x4f6f8268f9582f06a82e21bc9a422ae7690ea7373229e8f3e1661bf5c4b0c55b7a311b1c3fa9512e1a909f45ff3a6b93', 33699765);
INSERT INTO public.tollkeeper_migration VALUES (2, 'violations', '2026-11-16 13:11:56.641932+00', true, '\xe5f9a2f6c7c6724ce86d97dfe6e8ef5bd0edc9f12f7e40d79e44f1b16bf22521036a27904493a0cf0ca1d51ca22c9422', 17528697);
INSERT INTO public.tollkeeper_migration VALUES (3, 'actions', '2026-11-16 13:11:56.659755+00', true, '\x2c210b17719ddea68b3fe192034833c62213cbdfb85dc6c2332fb69bdb71ec534b335f017f3873cc1f780fe97e483ed5', 2880683);
INSERT INTO public.tollkeeper_migration VALUES (4, 'exceptions', '2026-11-16 13:11:56.662886+00', true, '\x2135af962a1a5502966dc597cbf7ba6289ae526e70f679d831f40a35b51cb627e4e69941f709710956da9bb47b1ff7d5', 3301948);
INSERT INTO public.tollkeeper_migration VALUES (5, 'audit size', '2026-11-16 13:11:56.666463+00', true, '\x982aa7ab39a59960872eaf058cc3037eb48c6fe71cbd6f4cc5275a4c7213db0180d999bfd5dc1ad7dc4f0eb9042fd6c4', 1047065);
INSERT INTO public.tollkeeper_migration VALUES (6, 'kept exceptions', '2026-11-16 13:11:56.669749+00', true, '\x512fe0b450aecef2d322a532e06d8413ccdc8290efcdc629dda407e1837e6c70082e930767e47a95806a0f4b14c09e61', 6476454);
INSERT INTO public.tollkeeper_migration VALUES (7, 'annotate', '2026-11-16 13:11:56.674496+00', true, '\x5bb183d8f82278eff7fb3fd94ca28a6311be69851e055a6c16274cc2e2d4820cdb63301303cce6d2b493b59b2bc88101', 4546102);
INSERT INTO public.tollkeeper_migration VALUES (8, 'quota', '2026-11-16 13:11:56.679213+00', true, '\x60689cd10f41683878c7b0d3b5cee57149a97eff4511799070150961dbfda392f30cc4dbc85d661471db817bada2b528', 3492594);
INSERT INTO public.tollkeeper_migration VALUES (9, 'violation mode', '2026-11-16 13:11:56.682894+00', true, '\xe64cdd083c7304ab06ef9d260aabbf7d9e9c1f4539c648bf0c9a76dec28e65630749fef26da6036a8aea6b6b49f1d4a7', 636003);
SELECT pg_catalog.setval('public.rate_limit_action_action_id_seq', 1, false);
SELECT pg_catalog.setval('public.rate_limit_rule_change_change_id_seq', 8, true);
SELECT pg_catalog.setval('public.rate_limit_rule_rule_id_seq', 7, true);
SELECT pg_catalog.setval('public.rate_limit_violation_violation_id_seq', 1, false);
ALTER TABLE ONLY public.rate_limit_action
    ADD CONSTRAINT rate_limit_action_pkey PRIMARY KEY (action_id);
ALTER TABLE ONLY public.rate_limit_kept_exceptions
    ADD CONSTRAINT rate_limit_kept_exceptions_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.rate_limit_rule_change
    ADD CONSTRAINT rate_limit_rule_change_pkey PRIMARY KEY (change_id);
ALTER TABLE ONLY public.rate_limit_rule_head
    ADD CONSTRAINT rate_limit_rule_head_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.rate_limit_rule
    ADD CONSTRAINT rate_limit_rule_name_is_unique UNIQUE (name);
ALTER TABLE ONLY public.rate_limit_rule
    ADD CONSTRAINT rate_limit_rule_pkey PRIMARY KEY (rule_id);
ALTER TABLE ONLY public.rate_limit_rule_version
    ADD CONSTRAINT rate_limit_rule_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.rate_limit_violation
    ADD CONSTRAINT rate_limit_violation_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.rate_limit_violation_20261115
    ADD CONSTRAINT rate_limit_violation_20261115_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.rate_limit_violation_20261116
    ADD CONSTRAINT rate_limit_violation_20261116_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.rate_limit_violation_20261117
    ADD CONSTRAINT rate_limit_violation_20261117_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.rate_limit_violation_20261118
    ADD CONSTRAINT rate_limit_violation_20261118_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.rate_limit_violation_other
    ADD CONSTRAINT rate_limit_violation_other_pkey PRIMARY KEY (requested_at, violation_id);
ALTER TABLE ONLY public.tollkeeper_migration
    ADD CONSTRAINT tollkeeper_migration_pkey PRIMARY KEY (version);
CREATE INDEX rate_limit_action_by_key ON public.rate_limit_action USING btree (rule, bucket_key, acted_at DESC);
CREATE INDEX rate_limit_action_by_time ON public.rate_limit_action USING btree (acted_at DESC, action_id DESC);
CREATE INDEX rate_limit_rule_change_by_version ON public.rate_limit_rule_change USING btree (version, change_id);
CREATE INDEX rate_limit_violation_by_ip ON ONLY public.rate_limit_violation USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_20261115_ip_requested_at_idx ON public.rate_limit_violation_20261115 USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_by_rule ON ONLY public.rate_limit_violation USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_20261115_rule_requested_at_idx ON public.rate_limit_violation_20261115 USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_by_user ON ONLY public.rate_limit_violation USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
CREATE INDEX rate_limit_violation_20261115_user_id_requested_at_idx ON public.rate_limit_violation_20261115 USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
CREATE INDEX rate_limit_violation_20261116_ip_requested_at_idx ON public.rate_limit_violation_20261116 USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_20261116_rule_requested_at_idx ON public.rate_limit_violation_20261116 USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_20261116_user_id_requested_at_idx ON public.rate_limit_violation_20261116 USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
CREATE INDEX rate_limit_violation_20261117_ip_requested_at_idx ON public.rate_limit_violation_20261117 USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_20261117_rule_requested_at_idx ON public.rate_limit_violation_20261117 USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_20261117_user_id_requested_at_idx ON public.rate_limit_violation_20261117 USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
CREATE INDEX rate_limit_violation_20261118_ip_requested_at_idx ON public.rate_limit_violation_20261118 USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_20261118_rule_requested_at_idx ON public.rate_limit_violation_20261118 USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_20261118_user_id_requested_at_idx ON public.rate_limit_violation_20261118 USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
CREATE INDEX rate_limit_violation_other_ip_requested_at_idx ON public.rate_limit_violation_other USING btree (ip, requested_at DESC) WHERE (ip IS NOT NULL);
CREATE INDEX rate_limit_violation_other_rule_requested_at_idx ON public.rate_limit_violation_other USING btree (rule, requested_at DESC);
CREATE INDEX rate_limit_violation_other_user_id_requested_at_idx ON public.rate_limit_violation_other USING btree (user_id, requested_at DESC) WHERE (user_id IS NOT NULL);
ALTER INDEX public.rate_limit_violation_by_ip ATTACH PARTITION public.rate_limit_violation_20261115_ip_requested_at_idx;
ALTER INDEX public.rate_limit_violation_pkey ATTACH PARTITION public.rate_limit_violation_20261115_pkey;
ALTER INDEX public.rate_limit_violation_by_rule ATTACH PARTITION public.rate_limit_violation_20261115_rule_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_user ATTACH PARTITION public.rate_limit_violation_20261115_user_id_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_ip ATTACH PARTITION public.rate_limit_violation_20261116_ip_requested_at_idx;
ALTER INDEX public.rate_limit_violation_pkey ATTACH PARTITION public.rate_limit_violation_20261116_pkey;
ALTER INDEX public.rate_limit_violation_by_rule ATTACH PARTITION public.rate_limit_violation_20261116_rule_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_user ATTACH PARTITION public.rate_limit_violation_20261116_user_id_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_ip ATTACH PARTITION public.rate_limit_violation_20261117_ip_requested_at_idx;
ALTER INDEX public.rate_limit_violation_pkey ATTACH PARTITION public.rate_limit_violation_20261117_pkey;
ALTER INDEX public.rate_limit_violation_by_rule ATTACH PARTITION public.rate_limit_violation_20261117_rule_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_user ATTACH PARTITION public.rate_limit_violation_20261117_user_id_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_ip ATTACH PARTITION public.rate_limit_violation_20261118_ip_requested_at_idx;
ALTER INDEX public.rate_limit_violation_pkey ATTACH PARTITION public.rate_limit_violation_20261118_pkey;
ALTER INDEX public.rate_limit_violation_by_rule ATTACH PARTITION public.rate_limit_violation_20261118_rule_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_user ATTACH PARTITION public.rate_limit_violation_20261118_user_id_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_ip ATTACH PARTITION public.rate_limit_violation_other_ip_requested_at_idx;
ALTER INDEX public.rate_limit_violation_pkey ATTACH PARTITION public.rate_limit_violation_other_pkey;
ALTER INDEX public.rate_limit_violation_by_rule ATTACH PARTITION public.rate_limit_violation_other_rule_requested_at_idx;
ALTER INDEX public.rate_limit_violation_by_user ATTACH PARTITION public.rate_limit_violation_other_user_id_requested_at_idx;
CREATE TRIGGER complete BEFORE INSERT OR UPDATE ON public.rate_limit_rule FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rule_complete();
CREATE TRIGGER lock BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.rate_limit_rule FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_rule_lock();
CREATE TRIGGER record AFTER INSERT OR DELETE ON public.rate_limit_rule FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rule_record();
CREATE TRIGGER record_truncate BEFORE TRUNCATE ON public.rate_limit_rule FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_rule_record_truncate();
CREATE TRIGGER record_update AFTER UPDATE ON public.rate_limit_rule FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.rate_limit_rule_record();
ALTER TABLE ONLY public.rate_limit_rule_change
    ADD CONSTRAINT rate_limit_rule_change_version_fkey FOREIGN KEY (version) REFERENCES public.rate_limit_rule_version(version);
-- PostgreSQL database dump complete
