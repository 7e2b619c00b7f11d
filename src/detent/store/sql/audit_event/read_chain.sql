-- Both ends of the chain, and the events that are not in it yet
SELECT c.head, c.head_hash, c.purged, c.purged_hash, u.events AS unchained, u.age AS unchained_age
  FROM audit_chain c,
       (SELECT count(*) AS events, now() - min(at) AS age FROM audit_events WHERE position IS NULL) u
