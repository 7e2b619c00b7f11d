-- Lock a tenant that is being deleted, for one step. No row: another node is at it, or has finished. $1 tenant
SELECT tenant, name, deleting_by, deleted_rows FROM tenants
 WHERE tenant = $1::integer AND deleting_at IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED
