-- Jobs whose pause has ended, and in how many seconds the next pause ends. $1 limit
SELECT j.id, j.tenant, extract(epoch FROM j.paused_until - now())::double precision AS seconds
  FROM jobs j WHERE j.paused_until IS NOT NULL AND j.status = 'paused' ORDER BY j.paused_until LIMIT $1::integer
