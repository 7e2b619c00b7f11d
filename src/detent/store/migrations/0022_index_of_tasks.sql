-- detent: no-transaction
-- detent: compatible with 0009
-- For lists of a tenant's tasks, by its queues. Jobs with a schedule have no entry, and their fires update none of its columns.
-- Concurrently, and apart from 0021: it reads all cursors, and ten million of them would keep every fire waiting for seconds.
CREATE INDEX CONCURRENTLY IF NOT EXISTS cursors_tasks ON cursors (queue, job) WHERE task;
