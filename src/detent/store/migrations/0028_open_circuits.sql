-- detent: compatible with 0009
-- Hosts that do not answer calls of this node's worker, as it last reported: [{"tenant", "host", "port", "opened_at",
-- "next_probe_at", "put_off", "error"}]. NULL: none. Written when a circuit opens, is probed or closes, at most every few
-- seconds.
ALTER TABLE nodes ADD COLUMN circuits jsonb;
