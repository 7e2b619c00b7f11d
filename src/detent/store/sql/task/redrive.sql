-- As run/redrive, for on-demand runs: dead runs return to the backlog under a higher token, as many as are asked for,
-- since no lane has to be free. Arrays: $1 job, $2 scheduled_at, $3 serial; then $4 tenant, $5 limit, $6 limits of the
-- caller or NULL. A unique key is not taken again: the run still has it, unless another run took it meanwhile.
WITH dead AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, h.token, h.key, h.payload, c.queue, c.revision, c.priority, c.once, j.tenant
      FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) AS batch (job, scheduled_at, serial)
     CROSS JOIN LATERAL (
        SELECT * FROM run_history
         WHERE job = batch.job AND scheduled_at = batch.scheduled_at AND serial = batch.serial AND status = 2
           AND reason IS DISTINCT FROM 'discarded' FOR UPDATE) h
      JOIN jobs j ON j.job = h.job AND j.tenant = $4::integer AND j.status <> 'deleted'
       AND ($6::jsonb IS NULL OR within_limits(j.job, $6::jsonb))
      JOIN cursors c ON c.job = h.job ORDER BY h.scheduled_at, h.job, h.serial LIMIT $5::integer),
gone AS (
    DELETE FROM run_history h USING dead
     WHERE h.job = dead.job AND h.scheduled_at = dead.scheduled_at AND h.serial = dead.serial
    RETURNING h.job, h.scheduled_at, h.serial)
INSERT INTO backlog AS b (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, keyed, wakes,
                          key, payload)
SELECT d.job, d.scheduled_at, now(), greatest(d.token, (SELECT incarnation FROM cluster) << 22) + 1, d.serial,
       on_demand_queue(d.tenant, d.queue, NULL), d.revision, d.priority, d.once, d.key IS NOT NULL,
       CASE WHEN row_number() OVER (PARTITION BY d.job) = 1 THEN true END, d.key, d.payload
  FROM dead d JOIN gone USING (job, scheduled_at, serial)
RETURNING b.job, b.scheduled_at, b.serial, b.queue
