-- $1 the name of a table that is no longer a partition. False: it is attached again.
SELECT drop_history_part($1::text) AS dropped
