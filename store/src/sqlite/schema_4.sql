-- Version 4. Gives the started calls of a run the name that the interface uses.

alter table effects rename to started_calls;
alter table runs rename column effects to started_calls;
drop index effects_by_ordinal;
create unique index started_calls_by_ordinal on started_calls (run, ordinal);
