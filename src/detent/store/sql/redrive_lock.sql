-- First statement of a re-drive, as trigger_lock for several jobs, in the order of their key. $1 jobs
SELECT job FROM cursors WHERE job = ANY ($1::bigint[]) ORDER BY job FOR NO KEY UPDATE
