-- Whether elections are on record already.
SELECT partition FROM elections LIMIT 1
