-- Denials of keys that an exception blocks: until when, and by whom. Null where the block has no end, or nobody said who.

alter table rate_limit_violation
    add column blocked       boolean not null default false,
    add column blocked_until timestamptz,
    add column blocked_by    text;

-- By which attribute a key was meant, where its rule has alternatives.
alter table rate_limit_action add column key_by text;
