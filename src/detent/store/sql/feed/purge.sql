-- Hints are of no use to anybody after a while.
DELETE FROM changes WHERE at < now() - interval '2 minutes'
