-- Before a new version: the older ones stay valid for some seconds more, never longer than before; expired ones go.
-- $1 tenant, $2 name, $3 seconds. Returns how many stay.
WITH gone AS (
    DELETE FROM secret_versions
     WHERE tenant = $1 AND name = $2 AND ($3::double precision = 0 OR expires_at <= now())),
kept AS (
    UPDATE secret_versions
       SET expires_at = least(coalesce(expires_at, 'infinity'), now() + make_interval(secs => $3::double precision))
     WHERE tenant = $1 AND name = $2 AND $3::double precision > 0 AND (expires_at IS NULL OR expires_at > now())
    RETURNING version)
SELECT count(*)::integer AS versions FROM kept
