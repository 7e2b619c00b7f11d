-- The newest job there is.
SELECT max(job) AS job FROM jobs
