-- Add the difference that a recount found, independent of what was counted since. $1 tenant, $2 by how much
UPDATE tenant_jobs SET jobs = jobs + $2::integer WHERE tenant = $1::integer
