-- Delete a secret; the foreign key deletes its versions, too. $1 tenant, $2 name
DELETE FROM secrets WHERE tenant = $1 AND name = $2
