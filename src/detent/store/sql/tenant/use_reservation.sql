-- Consume a reservation, in the transaction that inserts the jobs. $1 reservation; no row: it was cancelled meanwhile.
DELETE FROM job_reservations WHERE reservation = $1::bigint RETURNING reservation
