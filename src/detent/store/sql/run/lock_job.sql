-- First statement of a trigger: a second trigger then picks its lane with a snapshot that sees the first. $1 job
SELECT job FROM cursors WHERE job = $1::bigint FOR NO KEY UPDATE
