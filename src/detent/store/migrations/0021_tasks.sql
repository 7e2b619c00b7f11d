-- detent: compatible with 0009
-- Jobs without a schedule (tasks), wider priorities, and limits of concurrency keys. Nodes of an older release can read
-- neither such jobs nor such priorities: a cluster that has one refuses to create them.

ALTER TABLE cursors
    ADD COLUMN task       boolean NOT NULL DEFAULT false,  -- it has no schedule: its runs are enqueued
    ADD COLUMN key_limit  smallint,                        -- runs of one concurrency key at the same time
    ADD COLUMN key_rate   double precision,                -- starts per second of one concurrency key
    ADD COLUMN key_shared boolean NOT NULL DEFAULT false,  -- the jobs of the tenant share their keys
    ADD COLUMN key_text   text,                            -- the template of the key
    DROP CONSTRAINT cursors_priority_check,
    ADD CONSTRAINT cursors_priority_check CHECK (priority BETWEEN -100 AND 100);
