-- Runs held by a node that is not alive, or pulled under an expired lease. $1 job or NULL
SELECT count(*) AS runs, min(r.not_before) AS oldest FROM live_runs r
 WHERE r.owner IS NOT NULL AND ($1::bigint IS NULL OR r.job = $1::bigint)
   AND CASE WHEN r.owner > 0 THEN NOT EXISTS (SELECT FROM nodes n WHERE n.node = r.owner AND NOT n.evicted
       AND n.expires_at > clock_timestamp())
            ELSE NOT EXISTS (SELECT FROM pull_leases l WHERE l.job = r.job AND l.scheduled_at = r.scheduled_at
                AND l.serial = r.serial
                                AND l.lease_until > clock_timestamp()) END
