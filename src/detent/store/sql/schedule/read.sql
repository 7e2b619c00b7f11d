-- $1 schedule numbers
SELECT schedule, stored FROM schedules WHERE schedule = ANY ($1::integer[])
