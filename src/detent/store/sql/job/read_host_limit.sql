-- The host that a job calls, and how many calls to it one worker makes at the same time for jobs with a limit. $1 job
SELECT definition->'target'->>'url' AS url, (definition->'target'->>'host_concurrency')::integer AS calls
  FROM jobs WHERE job = $1::bigint AND definition->'target' ? 'host_concurrency'
