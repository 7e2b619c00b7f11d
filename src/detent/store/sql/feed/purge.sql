-- Delete old hints, which have no use.
DELETE FROM changes WHERE at < now() - interval '2 minutes'
