-- Version 1. Flags are 0 and 1, times are milliseconds since the Unix epoch, sets of labels are JSON. `bytes` is the
-- size of a row's payloads. Texts are compared by their bytes, as in SQLite.

create table runs (
    id text collate "C" primary key not null,
    agent text collate "C" not null,
    workspace text collate "C" not null,
    created bigint not null,
    updated bigint not null,
    status text collate "C" not null,
    ended bigint not null,
    version bigint not null,
    messages bigint not null,
    steps bigint not null,
    effects bigint not null,
    labels text collate "C" not null,
    lease_owner text collate "C",
    lease_until bigint,
    cancel_requested bigint
);
create index runs_by_age on runs (created, id);
create index runs_by_agent on runs (agent, created, id);
create index runs_by_workspace on runs (workspace, created, id);
create index runs_by_openness on runs (ended, created, id);
create index runs_by_end on runs (ended, updated);

-- Apart from `runs`, so that the change of a lease does not write the state again.
create table run_states (
    run text collate "C" primary key not null references runs (id) on delete cascade,
    state text collate "C" not null
);

create table messages (
    run text collate "C" not null references runs (id) on delete cascade,
    ordinal bigint not null,
    bytes bigint not null,
    body text collate "C" not null,
    primary key (run, ordinal)
);

create table steps (
    run text collate "C" not null references runs (id) on delete cascade,
    ordinal bigint not null,
    kind text collate "C" not null,
    begun bigint not null,
    finished bigint not null,
    summary text collate "C" not null,
    primary key (run, ordinal)
);

create table effects (
    run text collate "C" not null references runs (id) on delete cascade,
    call text collate "C" not null,
    ordinal bigint not null,
    tool text collate "C" not null,
    bytes bigint not null,
    arguments text collate "C" not null,
    may_repeat bigint not null,
    attempts bigint not null,
    begun bigint not null,
    finished bigint,
    result text collate "C",
    labels text collate "C" not null,
    primary key (run, call)
);
create unique index effects_by_ordinal on effects (run, ordinal);

create table calls (
    id text collate "C" primary key not null,
    run text collate "C" not null references runs (id) on delete cascade,
    agent text collate "C" not null,
    tool text collate "C" not null,
    bytes bigint not null,
    arguments text collate "C" not null,
    status text collate "C" not null,
    result text collate "C",
    created bigint not null,
    updated bigint not null,
    expires bigint
);
create index calls_by_age on calls (created, id);
create index calls_by_run on calls (run, status);
create index calls_by_expiry on calls (status, expires);

create table approvals (
    id text collate "C" primary key not null,
    run text collate "C" not null references runs (id) on delete cascade,
    call text collate "C" not null,
    tool text collate "C" not null,
    bytes bigint not null,
    question text collate "C" not null,
    hash text collate "C" not null,
    status text collate "C" not null,
    created bigint not null,
    expires bigint,
    decided_by text collate "C",
    decided_via text collate "C",
    decided bigint,
    edited_arguments text collate "C",
    reason text collate "C"
);
create index approvals_by_age on approvals (created, id);
create index approvals_by_run on approvals (run, status);
create index approvals_by_expiry on approvals (status, expires);

create table inboxes (
    agent text collate "C" primary key not null,
    last bigint not null,
    waiting bigint not null
);

create table inbox_entries (
    agent text collate "C" not null,
    ordinal bigint not null,
    kind text collate "C" not null,
    bytes bigint not null,
    body text collate "C" not null,
    created bigint not null,
    consumed bigint,
    primary key (agent, ordinal)
);
create index inbox_entries_by_consumption on inbox_entries (consumed);
