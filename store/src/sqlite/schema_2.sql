-- The inbox that gets a late result. Calls of version 1 have none: their agent's inbox gets it.
alter table calls add column inbox text;
