-- Version 4. Gives the started calls of a run the name that the interface uses.

alter table effects rename to started_calls;
alter table runs rename column effects to started_calls;
alter index effects_by_ordinal rename to started_calls_by_ordinal;
alter index effects_pkey rename to started_calls_pkey;
alter table started_calls rename constraint effects_run_fkey to started_calls_run_fkey;
