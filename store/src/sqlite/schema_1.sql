-- Version 1. Flags are 0 and 1, times are milliseconds since the Unix epoch, sets of labels are JSON. `bytes` is the
-- size of a row's payloads; it stands before them, so that it is read without them.

create table runs (
    id text primary key not null,
    agent text not null,
    workspace text not null,
    created integer not null,
    updated integer not null,
    status text not null,
    ended integer not null,
    version integer not null,
    messages integer not null,
    steps integer not null,
    effects integer not null,
    labels text not null,
    lease_owner text,
    lease_until integer,
    cancel_requested integer
) strict, without rowid;
create index runs_by_age on runs (created, id);
create index runs_by_agent on runs (agent, created, id);
create index runs_by_workspace on runs (workspace, created, id);
create index runs_by_openness on runs (ended, created, id);
create index runs_by_end on runs (ended, updated);

-- Apart from `runs`, so that the change of a lease does not write the state again.
create table run_states (
    run text primary key not null references runs (id) on delete cascade,
    state text not null
) strict;

create table messages (
    run text not null references runs (id) on delete cascade,
    ordinal integer not null,
    bytes integer not null,
    body text not null,
    primary key (run, ordinal)
) strict;

create table steps (
    run text not null references runs (id) on delete cascade,
    ordinal integer not null,
    kind text not null,
    begun integer not null,
    finished integer not null,
    summary text not null,
    primary key (run, ordinal)
) strict;

create table effects (
    run text not null references runs (id) on delete cascade,
    call text not null,
    ordinal integer not null,
    tool text not null,
    bytes integer not null,
    arguments text not null,
    may_repeat integer not null,
    attempts integer not null,
    begun integer not null,
    finished integer,
    result text,
    labels text not null,
    primary key (run, call)
) strict;
create unique index effects_by_ordinal on effects (run, ordinal);

create table calls (
    id text primary key not null,
    run text not null references runs (id) on delete cascade,
    agent text not null,
    tool text not null,
    bytes integer not null,
    arguments text not null,
    status text not null,
    result text,
    created integer not null,
    updated integer not null,
    expires integer
) strict;
create index calls_by_age on calls (created, id);
create index calls_by_run on calls (run, status);
create index calls_by_expiry on calls (status, expires);

create table approvals (
    id text primary key not null,
    run text not null references runs (id) on delete cascade,
    call text not null,
    tool text not null,
    bytes integer not null,
    question text not null,
    hash text not null,
    status text not null,
    created integer not null,
    expires integer,
    decided_by text,
    decided_via text,
    decided integer,
    edited_arguments text,
    reason text
) strict;
create index approvals_by_age on approvals (created, id);
create index approvals_by_run on approvals (run, status);
create index approvals_by_expiry on approvals (status, expires);

create table inboxes (
    agent text primary key not null,
    last integer not null,
    waiting integer not null
) strict, without rowid;

create table inbox_entries (
    agent text not null,
    ordinal integer not null,
    kind text not null,
    bytes integer not null,
    body text not null,
    created integer not null,
    consumed integer,
    primary key (agent, ordinal)
) strict;
create index inbox_entries_by_consumption on inbox_entries (consumed);
