-- detent: compatible with 0009
-- What the worker of a node serves: names of queues, and what it can call beyond HTTP (`python:…`, `process:…`, `shell@1`).
-- NULL: the node has no worker, or is of an older release and may serve anything.
ALTER TABLE nodes ADD COLUMN queues text[], ADD COLUMN capabilities text[];
