-- Numbers for jobs to come, and the time. A number that is not used leaves a gap, nothing else. $1 how many
SELECT now() AS now, nextval(pg_get_serial_sequence('jobs', 'job')) AS job FROM generate_series(1, $1::integer)
