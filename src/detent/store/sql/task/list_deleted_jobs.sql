-- Deleted jobs that have runs in the backlog: a deletion itself only changes its job, and an enqueue that commits after
-- it leaves runs behind. Through both indexes from one job to the next: in the order of backlog_parked, of which the
-- key is a part, because backlog_moved has many others. Not those of tenants that are being deleted, whose runs are
-- deleted with them.
WITH RECURSIVE ready AS (
    (SELECT job FROM backlog WHERE NOT parked ORDER BY job LIMIT 1)
    UNION ALL
    SELECT next.job FROM ready CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE NOT parked AND job > ready.job ORDER BY job LIMIT 1) next),
parked AS (
    (SELECT job FROM backlog WHERE parked ORDER BY job, key LIMIT 1)
    UNION ALL
    SELECT next.job FROM parked CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE parked AND job > parked.job ORDER BY job, key LIMIT 1) next)
SELECT found.job FROM (SELECT job FROM ready UNION SELECT job FROM parked) found
  JOIN jobs j ON j.job = found.job AND j.status = 'deleted'
  JOIN tenants t ON t.tenant = j.tenant AND t.deleting_at IS NULL
