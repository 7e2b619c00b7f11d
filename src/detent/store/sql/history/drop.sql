-- $1 the name of a table that is no partition any more. False: it is one again.
SELECT drop_history_part($1::text) AS dropped
