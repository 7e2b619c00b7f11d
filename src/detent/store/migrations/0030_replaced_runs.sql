-- detent: compatible with 0009
-- The run was asked to stop because the next tick replaces it (concurrent_policy REPLACE), not by an operator: it ends
-- with the reason `replaced`. NULL, which takes no space, for all others.
ALTER TABLE live_runs ADD COLUMN replaced boolean;
