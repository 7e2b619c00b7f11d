-- Numbers for jobs to come, and the time, as one row. A number that is not used leaves a gap, nothing else. $1 how many
SELECT now() AS now, ARRAY(
    SELECT nextval((SELECT pg_get_serial_sequence('jobs', 'job')::regclass)) FROM generate_series(1, $1::integer)) AS numbers
