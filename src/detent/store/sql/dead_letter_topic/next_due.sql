-- After how many seconds the next dead run is due; no row: none waits
SELECT extract(epoch FROM due_at - now())::double precision AS seconds FROM dead_letters ORDER BY due_at LIMIT 1
