-- Hold this session to one tenant. $1 the role for it, or none; $2 the tenant
SELECT set_config('role', $1::text, false), set_config('detent.tenant', $2::text, false)
