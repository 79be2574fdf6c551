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
SET default_tablespace = '';
SET default_table_access_method = heap;
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
    CONSTRAINT rate_limit_rule_mode_is_known CHECK ((mode = ANY (ARRAY['enforce'::text, 'shadow'::text]))),
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
CREATE TABLE public.tollkeeper_migration (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);
-- Data for Name: rate_limit_rule; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule VALUES (1, 'free-user', 1, '{user_id}', NULL, 10, '00:00:01', NULL, 'token_bucket', 'free', '{"path": ["/api/*"]}', '1', 'enforce', 'local', '{}', true, NULL, '2026-11-16 13:12:00.816148+00', '2026-11-16 13:12:00.816148+00');
INSERT INTO public.rate_limit_rule VALUES (2, 'login', 2, '{ip}', NULL, 6, '00:01:00', NULL, 'token_bucket', NULL, '{}', '1', 'enforce', 'local', '{}', true, NULL, '2026-11-16 13:12:00.816148+00', '2026-11-16 13:12:00.816148+00');
-- Data for Name: rate_limit_rule_change; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (1, 1, 1, 'free-user', NULL, '{"cost": 1, "mode": "enforce", "name": "free-user", "plan": "free", "rate": 10, "scope": null, "period": "00:00:01", "options": {}, "rule_id": 1, "position": 1, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:12:00.816148+00:00", "updated_at": "2026-11-16T13:12:00.816148+00:00", "description": null, "key_pattern": "{user_id}", "burst_capacity": null, "match_conditions": {"path": ["/api/*"]}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (2, 1, 2, 'login', NULL, '{"cost": 1, "mode": "enforce", "name": "login", "plan": null, "rate": 5, "scope": null, "period": "00:01:00", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:12:00.816148+00:00", "updated_at": "2026-11-16T13:12:00.816148+00:00", "description": null, "key_pattern": "{ip}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}');
INSERT INTO public.rate_limit_rule_change OVERRIDING SYSTEM VALUE VALUES (3, 1, 2, 'login', '{"cost": 1, "mode": "enforce", "name": "login", "plan": null, "rate": 5, "scope": null, "period": "00:01:00", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:12:00.816148+00:00", "updated_at": "2026-11-16T13:12:00.816148+00:00", "description": null, "key_pattern": "{ip}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}', '{"cost": 1, "mode": "enforce", "name": "login", "plan": null, "rate": 6, "scope": null, "period": "00:01:00", "options": {}, "rule_id": 2, "position": 2, "algorithm": "token_bucket", "is_active": true, "created_at": "2026-11-16T13:12:00.816148+00:00", "updated_at": "2026-11-16T13:12:00.816148+00:00", "description": null, "key_pattern": "{ip}", "burst_capacity": null, "match_conditions": {}, "on_store_failure": "local"}');
-- Data for Name: rate_limit_rule_head; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_head VALUES (true, 1, '769');
-- Data for Name: rate_limit_rule_version; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.rate_limit_rule_version VALUES (1, '2026-11-16 13:12:00.816148+00', 'tollkeeper', 'sql', NULL);
-- Data for Name: tollkeeper_migration; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.tollkeeper_migration VALUES (1, 'rules', '2026-11-16 13:11:56.605099+00', true, '\x4f6f8268f9582f06a82e21bc9a422ae7690ea7373229e8f3e1661bf5c4b0c55b7a311b1c3fa9512e1a909f45ff3a6b93', 33699765);
SELECT pg_catalog.setval('public.rate_limit_rule_change_change_id_seq', 3, true);
SELECT pg_catalog.setval('public.rate_limit_rule_rule_id_seq', 2, true);
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
ALTER TABLE ONLY public.tollkeeper_migration
    ADD CONSTRAINT tollkeeper_migration_pkey PRIMARY KEY (version);
CREATE INDEX rate_limit_rule_change_by_version ON public.rate_limit_rule_change USING btree (version, change_id);
CREATE TRIGGER complete BEFORE INSERT OR UPDATE ON public.rate_limit_rule FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rule_complete();
CREATE TRIGGER lock BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.rate_limit_rule FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_rule_lock();
CREATE TRIGGER record AFTER INSERT OR DELETE ON public.rate_limit_rule FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rule_record();
CREATE TRIGGER record_truncate BEFORE TRUNCATE ON public.rate_limit_rule FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_rule_record_truncate();
CREATE TRIGGER record_update AFTER UPDATE ON public.rate_limit_rule FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.rate_limit_rule_record();
ALTER TABLE ONLY public.rate_limit_rule_change
    ADD CONSTRAINT rate_limit_rule_change_version_fkey FOREIGN KEY (version) REFERENCES public.rate_limit_rule_version(version);
-- PostgreSQL database dump complete
