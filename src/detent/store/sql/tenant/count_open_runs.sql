-- $1 tenant
SELECT count(*) AS runs FROM jobs j JOIN live_runs r USING (job) WHERE j.tenant = $1::integer
