-- Announce that a session reads the feed: for the next minute, every notification is also written to it.
UPDATE cluster SET feed_until = now() + interval '1 minute'
 WHERE feed_until IS NULL OR feed_until < now() + interval '45 seconds' OR feed_until > now() + interval '2 minutes'
