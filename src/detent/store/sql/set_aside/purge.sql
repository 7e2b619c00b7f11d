-- Delete set-aside ticks that have fired since or no longer exist. $1 limit
WITH over AS MATERIALIZED (
    SELECT s.job, s.kind, s.tick FROM set_aside s
     WHERE NOT EXISTS (SELECT FROM set_aside_jobs v WHERE v.job = s.job AND v.kind = s.kind)
     ORDER BY s.job, s.kind LIMIT $1::integer FOR UPDATE SKIP LOCKED)
DELETE FROM set_aside s USING over WHERE s.job = over.job AND s.kind = over.kind AND s.tick = over.tick RETURNING s.job
