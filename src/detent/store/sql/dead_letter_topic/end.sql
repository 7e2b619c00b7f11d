-- The broker has acknowledged a dead run, or it is given up. $1 letter
DELETE FROM dead_letters WHERE letter = $1::bigint
