-- Evaluate the ticks whose deadline has passed, open and close incidents, and write the messages, in one statement. $1
-- node, $2 the partitions it leads, $3 limit, $4 how long to wait after a deadline for writes that are under way. A
-- tick is as expected (ok), missed, or neither: one that was skipped or cancelled was not meant to run. It is found in
-- history, among the live runs, under the cursor if it has not fired, or among those to be caught up. An incident
-- closes when a later tick was as expected, or when the tick it is about has begun, or succeeded, late. While all ticks
-- are held nothing is evaluated, because the clock may be wrong, and ticks from before the hold are not evaluated
-- later.
WITH fence AS MATERIALIZED (
    SELECT n.node, coalesce(c.resumed_at, '-infinity') AS resumed_at FROM nodes n, cluster c
     WHERE n.node = $1 AND NOT n.evicted AND c.held_at IS NULL FOR KEY SHARE OF n),
due AS MATERIALIZED (
    SELECT e.job, e.kind, e.within, e.notify_after, e.misses, e.missed_tick, e.incident, s.since AS judged,
           greatest(s.since, now() - e.within - $4::interval) AS through
      FROM fence, unnest($2::smallint[]) AS p (partition) CROSS JOIN LATERAL (
        SELECT * FROM expectations WHERE partition = p.partition AND check_at <= now()
         ORDER BY check_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED) e
     CROSS JOIN LATERAL (SELECT least(greatest(e.judged, fence.resumed_at), now()) AS since) s LIMIT $3::bigint),
looked AS MATERIALIZED (
    SELECT d.*, c.next_tick, t.ok_tick, t.miss_tick, coalesce(t.missed, 0) AS missed,
           CASE WHEN t.ok_tick IS NULL THEN d.misses ELSE 0 END + coalesce(t.missed_since, 0) AS streak,
           d.incident IS NOT NULL AND t.missed IS NULL AND (
               EXISTS (SELECT FROM run_history h
                        WHERE h.job = d.job AND h.scheduled_at = d.missed_tick AND h.serial = 0
                          AND (h.status = 1 OR d.kind = 'start' AND h.started_at IS NOT NULL))
               OR d.kind = 'start' AND EXISTS (SELECT FROM live_runs r
                        WHERE r.job = d.job AND r.scheduled_at = d.missed_tick AND r.serial = 0
                          AND (r.started_at IS NOT NULL OR r.attempt > 1 OR r.owner < 0))) AS after_all
      FROM due d LEFT JOIN cursors c ON c.job = d.job CROSS JOIN LATERAL (
        SELECT max(ok_tick) AS ok_tick, max(tick) FILTER (WHERE NOT ok) AS miss_tick,
               sum(ticks) FILTER (WHERE NOT ok) AS missed, sum(ticks) FILTER (WHERE NOT ok
                   AND (ok_tick IS NULL OR tick > ok_tick)) AS missed_since
          FROM (SELECT f.*, max(tick) FILTER (WHERE ok) OVER () AS ok_tick FROM (
                (SELECT h.scheduled_at AS tick, coalesce(h.ticks, 1) AS ticks,
                        CASE WHEN h.status = 5 THEN false
                             WHEN h.status = 4 THEN NULL
                             WHEN d.kind = 'start' THEN
                                 CASE WHEN h.status = 3 AND s.first IS NULL THEN NULL
                                      ELSE coalesce(s.first <= h.scheduled_at + d.within, false) END
                             WHEN h.status = 3 THEN NULL
                             ELSE h.status = 1 AND h.finished_at <= h.scheduled_at + d.within END AS ok
                   FROM run_history h CROSS JOIN LATERAL (
                        SELECT least(h.started_at, CASE WHEN h.attempt > 1 THEN (
                            SELECT min(a.started_at) FROM attempts a
                             WHERE a.job = h.job AND a.scheduled_at = h.scheduled_at AND a.serial = 0) END) AS first) s
                  WHERE h.job = d.job AND h.serial = 0 AND h.scheduled_at > d.judged AND h.scheduled_at <= d.through
                  ORDER BY h.scheduled_at DESC LIMIT 1000)
                UNION ALL
                SELECT r.scheduled_at, 1, d.kind = 'start' AND coalesce(least(
                        r.started_at,
                        (SELECT min(a.started_at) FROM attempts a
                          WHERE a.job = r.job AND a.scheduled_at = r.scheduled_at AND a.serial = 0),
                        (SELECT l.claimed_at FROM pull_leases l
                          WHERE l.job = r.job AND l.scheduled_at = r.scheduled_at AND l.serial = 0))
                        <= r.scheduled_at + d.within, false)
                  FROM live_runs r
                 WHERE r.job = d.job AND r.serial = 0 AND r.scheduled_at > d.judged AND r.scheduled_at <= d.through
                UNION ALL
                SELECT c.next_tick, 1, false WHERE c.next_tick > d.judged AND c.next_tick <= d.through
                UNION ALL
                SELECT k.next_tick, 1, false FROM catchups k
                 WHERE k.job = d.job AND k.kind = 'missed' AND k.next_tick > d.judged AND k.next_tick <= d.through) f
             WHERE f.ok IS NOT NULL) g) t),
decided AS MATERIALIZED (
    SELECT l.*, l.incident IS NULL AND l.streak >= l.notify_after AS opens,
           l.incident IS NOT NULL AND (l.after_all OR l.ok_tick IS NOT NULL AND l.streak < l.notify_after) AS closes,
           least(l.next_tick,
                 (SELECT min(r.scheduled_at) FROM live_runs r
                   WHERE r.job = l.job AND r.serial = 0 AND r.scheduled_at > l.through),
                 (SELECT h.scheduled_at FROM run_history h
                   WHERE h.job = l.job AND h.serial = 0 AND h.scheduled_at > l.through ORDER BY h.scheduled_at LIMIT 1))
               AS following
      FROM looked l),
opened AS (
    INSERT INTO incidents (tenant, job, kind, within, tick, misses)
    SELECT j.tenant, d.job, d.kind, d.within, coalesce(d.miss_tick, d.missed_tick), d.streak
      FROM decided d JOIN jobs j ON j.job = d.job WHERE d.opens
    RETURNING incident, job, kind),
closed AS (
    UPDATE incidents i SET closed_at = now(), closed = 'recovered'
      FROM decided d WHERE d.closes AND i.incident = d.incident AND i.closed_at IS NULL
    RETURNING i.incident),
told AS (
    INSERT INTO notices (incident, event)
    SELECT incident, 'missed' FROM opened UNION ALL SELECT incident, 'recovered' FROM closed),
-- a cursor that has not moved since it was evaluated, or an open incident: check again soon
judged_rows AS (
    UPDATE expectations e SET judged = d.through, misses = CASE WHEN d.closes AND d.after_all THEN 0 ELSE d.streak END,
           missed_tick = coalesce(d.miss_tick, d.missed_tick),
           incident = CASE WHEN d.closes THEN NULL
                           ELSE coalesce(d.incident, (SELECT o.incident FROM opened o WHERE o.job = d.job
                               AND o.kind = d.kind)) END,
           check_at = least(CASE WHEN d.following > d.through
           THEN greatest(d.following + d.within + $4::interval, now()) END,
                            CASE WHEN d.opens OR d.incident IS NOT NULL AND NOT d.closes OR d.following <= d.through
                                 THEN now() + least(greatest(d.within / 4, interval '5 seconds'),
                            interval '5 minutes') END, 'infinity')
      FROM decided d WHERE e.job = d.job AND e.kind = d.kind)
SELECT d.kind, d.missed, d.opens, d.closes, d.streak, j.id, j.name, coalesce(d.miss_tick, d.missed_tick) AS tick
  FROM decided d JOIN jobs j ON j.job = d.job WHERE d.missed > 0 OR d.opens OR d.closes
UNION ALL SELECT NULL, count(*), NULL, NULL, NULL, NULL, NULL, NULL FROM due
