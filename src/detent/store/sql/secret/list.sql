-- Secrets by name, without their values. $1 tenant, $2 limit, $3 one name, or NULL for all
SELECT s.name, s.version, s.created_at, s.changed_at, s.changed_by, v.versions, v.previous_until,
       (SELECT count(*)::integer FROM jobs j
         WHERE j.tenant = s.tenant AND j.secrets @> ARRAY[s.name::text] AND j.status <> 'deleted') AS jobs
  FROM secrets s
 CROSS JOIN LATERAL (
    SELECT count(*)::integer AS versions, max(expires_at) AS previous_until FROM secret_versions v
     WHERE v.tenant = s.tenant AND v.name = s.name AND (v.expires_at IS NULL OR v.expires_at > now())) v
 WHERE s.tenant = $1 AND (s.name = $3::text OR $3::text IS NULL) ORDER BY s.name LIMIT $2::integer
