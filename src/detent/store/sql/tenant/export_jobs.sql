-- Jobs with what belongs to them and is small, as rows of JSON. $1 jobs
SELECT j.job, 'jobs' AS name, 0 AS place, to_jsonb(j) AS row FROM jobs j WHERE j.job = ANY ($1::bigint[])
UNION ALL SELECT c.job, 'cursors', 1, to_jsonb(c) || jsonb_build_object('schedule', s.stored)
            FROM cursors c JOIN schedules s USING (schedule) WHERE c.job = ANY ($1::bigint[])
UNION ALL SELECT g.job, 'segments', 2, to_jsonb(g) FROM segments g WHERE g.job = ANY ($1::bigint[])
UNION ALL SELECT s.job, 'skips', 3, to_jsonb(s) FROM skips s WHERE s.job = ANY ($1::bigint[])
UNION ALL SELECT k.job, 'catchups', 4, to_jsonb(k) FROM catchups k WHERE k.job = ANY ($1::bigint[])
UNION ALL SELECT e.job, 'expectations', 5, to_jsonb(e) FROM expectations e WHERE e.job = ANY ($1::bigint[])
UNION ALL SELECT i.job, 'incidents', 6, to_jsonb(i) FROM incidents i WHERE i.job = ANY ($1::bigint[])
ORDER BY job, place
