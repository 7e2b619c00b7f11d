-- Among the newest $1 dead runs, those whose address no list allows: of how many jobs, and the error of the newest.
WITH newest AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, h.token FROM run_history h
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' ORDER BY h.scheduled_at DESC LIMIT $1::integer)
SELECT count(DISTINCT a.job) AS jobs, (array_agg(a.error ORDER BY a.scheduled_at DESC))[1] AS error
  FROM newest JOIN attempts a USING (job, scheduled_at, serial, token)
 WHERE a.error LIKE '% was not called: %`detent tenant allow %'
