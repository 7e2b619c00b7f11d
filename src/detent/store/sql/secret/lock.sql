-- Lock a secret before its deletion: registrations that refer to it wait, and this waits for theirs. $1 tenant, $2 name
SELECT version FROM secrets WHERE tenant = $1 AND name = $2 FOR UPDATE
