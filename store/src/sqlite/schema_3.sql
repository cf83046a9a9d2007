-- Participants, their spaces, notes, tokens and events.

-- Where the result of a call went: the ordinal in its inbox, 0 for the run itself. Results of older versions have none.
alter table calls add column delivered integer;
create index runs_by_agent_and_openness on runs (agent, ended, created, id);
create index inboxes_with_entries on inboxes (agent) where waiting > 0;

create table participants (
    id text primary key not null,
    kind text not null,
    name text not null,
    version integer not null,
    created integer not null,
    updated integer not null,
    bytes integer not null,
    definition text not null
) strict;
create index participants_by_age on participants (created, id);
create index participants_by_kind on participants (kind, created, id);

-- `removed` is 1 from the removal until the sweep. The topic is that whose events go with the space.
create table spaces (
    id text primary key not null,
    name text not null,
    created integer not null,
    messages integer not null,
    removed integer not null,
    removed_topic text
) strict, without rowid;
create index spaces_by_age on spaces (created, id) where removed = 0;
create index removed_spaces on spaces (id) where removed = 1;

create table space_members (
    space text not null references spaces (id) on delete cascade,
    participant text not null references participants (id) on delete cascade,
    joined integer not null,
    primary key (space, participant)
) strict, without rowid;
create index space_members_by_participant on space_members (participant, space);

create table space_messages (
    space text not null references spaces (id) on delete cascade,
    ordinal integer not null,
    id text not null,
    author text not null,
    author_kind text not null,
    author_name text not null,
    kind text not null,
    reply_to text,
    status text not null,
    call text,
    created integer not null,
    updated integer not null,
    bytes integer not null,
    body text not null,
    metadata text,
    primary key (space, ordinal)
) strict;
create unique index space_messages_by_id on space_messages (id);
create index space_messages_by_call on space_messages (call, created, id) where call is not null;

create table space_message_words (
    space text not null,
    word text not null,
    ordinal integer not null,
    primary key (space, word, ordinal)
) strict, without rowid;

-- The one row gives the ids of events. `removed` is the largest id that was removed for its age.
create table event_log (
    one integer primary key not null check (one = 1),
    newest integer not null,
    removed integer not null
) strict;
insert into event_log (one, newest, removed) values (1, 0, 0);

create table events (
    id integer primary key not null,
    created integer not null,
    kind text not null,
    topics text not null,
    bytes integer not null,
    data text not null
) strict;

create table event_topics (
    topic text not null,
    event integer not null references events (id) on delete cascade,
    primary key (topic, event)
) strict, without rowid;
create index event_topics_by_event on event_topics (event);

create table notes (
    agent text not null,
    kind text not null,
    id text not null,
    due integer,
    every integer,
    created integer not null,
    updated integer not null,
    bytes integer not null,
    body text not null,
    primary key (agent, kind, id)
) strict;
create index notes_by_age on notes (agent, kind, created, id);
create index notes_by_due on notes (due, agent, id) where due is not null;

create table tokens (
    id text primary key not null,
    hash text not null,
    subject_kind text not null,
    subject text,
    created integer not null
) strict, without rowid;
create unique index tokens_by_hash on tokens (hash);
create index tokens_by_age on tokens (created, id);
create index tokens_by_subject on tokens (subject_kind, subject);
