-- The state of the cluster, in one row, for metrics. $1 the maximum that is counted of each kind, $2 the maximum of due
-- ticks that are counted in a partition. Nothing here reads more than that: due ticks are found in each partition's
-- part of the index, ready runs by skipping from one queue and priority to the next, dead runs by their index.
-- On-demand runs are ready when nothing but a worker is missing: not those of paused tasks, nor those that wait for a
-- key. Each lookup for one of them has a LIMIT 1, so that no plan reads all jobs instead, whatever number of rows it
-- estimates. A job was not executed for two of its intervals when its tick is due for longer than one, or when its run
-- has waited for two and never began. The interval is the last one.
WITH RECURSIVE heads AS (
    (SELECT queue, priority, not_before FROM live_runs WHERE owner IS NULL AND lane >= 0
      ORDER BY queue, priority, not_before LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.not_before FROM heads h, LATERAL (
        SELECT queue, priority, not_before FROM live_runs
         WHERE owner IS NULL AND lane >= 0 AND (queue, priority) > (h.queue, h.priority)
         ORDER BY queue, priority, not_before LIMIT 1) n),
due AS MATERIALIZED (
    SELECT d.* FROM generate_series(0, 255) AS p (partition), LATERAL (
        SELECT next_tick, last_tick, fire_at FROM cursors WHERE partition = p.partition AND fire_at <= now()
         ORDER BY fire_at LIMIT $2::bigint) d),
ready AS MATERIALIZED (
    SELECT r.* FROM heads h, LATERAL (
        SELECT job, scheduled_at, not_before, attempt, crashes FROM live_runs
         WHERE queue = h.queue AND priority = h.priority AND owner IS NULL AND lane >= 0 AND not_before <= now()
         ORDER BY not_before LIMIT $1::bigint) r LIMIT $1::bigint),
task_heads AS MATERIALIZED (SELECT * FROM backlog_heads WHERE startable AND not_before <= now()),
ready_tasks AS (
    SELECT FROM task_heads h CROSS JOIN LATERAL (
        SELECT FROM backlog WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority
           AND NOT parked AND not_before <= now() LIMIT $1::bigint) b LIMIT $1::bigint),
dead AS (
    SELECT FROM run_history h CROSS JOIN LATERAL (SELECT status FROM jobs WHERE job = h.job LIMIT 1) j
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND j.status <> 'deleted' LIMIT $1::bigint),
standing AS (
    SELECT tzdata, version, evicted, CASE WHEN evicted OR expires_at <= now() THEN 'evicted'
        WHEN now() - beat_at > ttl * 2 / 3 THEN 'silent' WHEN draining THEN 'draining' ELSE 'alive' END AS state
      FROM nodes)
SELECT (SELECT count(*) FROM due) AS ticks_due,
       now() - (SELECT min(fire_at) FROM due) AS oldest_due,
       least((SELECT count(*) FROM ready) + (SELECT count(*) FROM ready_tasks), $1::bigint) AS runs_ready,
       now() - least((SELECT min(not_before) FROM ready), (SELECT min(not_before) FROM task_heads)) AS oldest_ready,
       (SELECT count(*) FROM due WHERE isfinite(last_tick) AND now() - next_tick > next_tick - last_tick)
     + (SELECT count(DISTINCT r.job) FROM (SELECT * FROM ready ORDER BY not_before LIMIT 1000) r
         CROSS JOIN LATERAL (SELECT last_tick, next_tick FROM cursors WHERE job = r.job LIMIT 1) c
         WHERE r.attempt = 1 AND r.crashes = 0 AND isfinite(c.last_tick) AND c.next_tick > now()
           AND now() - r.scheduled_at > 2 * (c.next_tick - c.last_tick)) AS jobs_overdue,
       (SELECT count(*) FROM dead) AS dead_letters,
       (SELECT coalesce(sum(left_over), 0) FROM (SELECT left_over FROM catchups LIMIT $1::bigint) c) AS catch_up_ticks,
       ARRAY (SELECT state FROM standing ORDER BY state) AS nodes,
       (SELECT count(DISTINCT tzdata) FROM standing WHERE NOT evicted) AS zone_data_releases,
       (SELECT count(DISTINCT version) FROM standing WHERE NOT evicted) AS versions,
       (SELECT count(*) FROM partitions p WHERE NOT EXISTS (
            SELECT FROM nodes n WHERE n.node = p.holder AND NOT n.evicted
                AND n.expires_at > now())) AS partitions_without_leader,
       (SELECT coalesce(max(e.elections), 0) FROM (
            SELECT count(*) AS elections FROM elections WHERE at > now() - interval '1 hour'
             GROUP BY partition) e) AS partition_elections,
       (SELECT count(*) FROM (SELECT FROM incidents WHERE closed_at IS NULL LIMIT $1::bigint) i) AS incidents_open,
       (SELECT count(*) FROM (SELECT FROM set_aside_jobs LIMIT $1::bigint) s) AS jobs_set_aside
