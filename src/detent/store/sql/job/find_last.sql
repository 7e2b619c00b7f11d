-- The newest job.
SELECT max(job) AS job FROM jobs
