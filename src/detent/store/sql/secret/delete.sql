-- Its versions are deleted with it. $1 tenant, $2 name
DELETE FROM secrets WHERE tenant = $1 AND name = $2
