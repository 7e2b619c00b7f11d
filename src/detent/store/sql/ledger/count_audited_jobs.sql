-- How many jobs an audit covers. $1 tenant, $2 after, $3 until, $4 some numbers, or NULL for all
SELECT count(*) AS jobs FROM jobs
 WHERE tenant = $1::integer AND created_at < $3::timestamptz AND ($4::bigint[] IS NULL OR job = ANY ($4::bigint[]))
   AND (status <> 'deleted' OR since > $2::timestamptz)
