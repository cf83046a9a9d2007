-- Participants, their spaces, notes, tokens and events.

-- Where the result of a call went: the ordinal in its inbox, 0 for the run itself. Results of older versions have none.
alter table calls add column delivered bigint;
create index runs_by_agent_and_openness on runs (agent, ended, created, id);
create index inboxes_with_entries on inboxes (agent) where waiting > 0;

create table participants (
    id text collate "C" primary key not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    version bigint not null,
    created bigint not null,
    updated bigint not null,
    bytes bigint not null,
    definition text collate "C" not null
);
create index participants_by_age on participants (created, id);
create index participants_by_kind on participants (kind, created, id);

-- `removed` is 1 from the removal until the sweep. The topic is that whose events go with the space.
create table spaces (
    id text collate "C" primary key not null,
    name text collate "C" not null,
    created bigint not null,
    messages bigint not null,
    removed bigint not null,
    removed_topic text collate "C"
);
create index spaces_by_age on spaces (created, id) where removed = 0;
create index removed_spaces on spaces (id) where removed = 1;

create table space_members (
    space text collate "C" not null references spaces (id) on delete cascade,
    participant text collate "C" not null references participants (id) on delete cascade,
    joined bigint not null,
    primary key (space, participant)
);
create index space_members_by_participant on space_members (participant, space);

create table space_messages (
    space text collate "C" not null references spaces (id) on delete cascade,
    ordinal bigint not null,
    id text collate "C" not null,
    author text collate "C" not null,
    author_kind text collate "C" not null,
    author_name text collate "C" not null,
    kind text collate "C" not null,
    reply_to text collate "C",
    status text collate "C" not null,
    call text collate "C",
    created bigint not null,
    updated bigint not null,
    bytes bigint not null,
    body text collate "C" not null,
    metadata text collate "C",
    primary key (space, ordinal)
);
create unique index space_messages_by_id on space_messages (id);
create index space_messages_by_call on space_messages (call, created, id) where call is not null;

create table space_message_words (
    space text collate "C" not null,
    word text collate "C" not null,
    ordinal bigint not null,
    primary key (space, word, ordinal)
);

-- The one row gives the ids of events. `removed` is the largest id that was removed for its age.
create table event_log (
    one bigint primary key not null check (one = 1),
    newest bigint not null,
    removed bigint not null
);
insert into event_log (one, newest, removed) values (1, 0, 0);

create table events (
    id bigint primary key not null,
    created bigint not null,
    kind text collate "C" not null,
    topics text collate "C" not null,
    bytes bigint not null,
    data text collate "C" not null
);

create table event_topics (
    topic text collate "C" not null,
    event bigint not null references events (id) on delete cascade,
    primary key (topic, event)
);
create index event_topics_by_event on event_topics (event);

create table notes (
    agent text collate "C" not null,
    kind text collate "C" not null,
    id text collate "C" not null,
    due bigint,
    every bigint,
    created bigint not null,
    updated bigint not null,
    bytes bigint not null,
    body text collate "C" not null,
    primary key (agent, kind, id)
);
create index notes_by_age on notes (agent, kind, created, id);
create index notes_by_due on notes (due, agent, id) where due is not null;

create table tokens (
    id text collate "C" primary key not null,
    hash text collate "C" not null,
    subject_kind text collate "C" not null,
    subject text collate "C",
    created bigint not null
);
create unique index tokens_by_hash on tokens (hash);
create index tokens_by_age on tokens (created, id);
create index tokens_by_subject on tokens (subject_kind, subject);
