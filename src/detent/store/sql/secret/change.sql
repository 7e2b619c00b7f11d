-- Make room for the next version of a secret that exists; locks its row. $1 tenant, $2 name, $3 who
UPDATE secrets SET version = version + 1, changed_at = now(), changed_by = $3 WHERE tenant = $1 AND name = $2
RETURNING version
