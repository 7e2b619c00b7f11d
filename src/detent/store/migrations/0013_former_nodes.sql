-- detent: compatible with 0009
-- Nodes that have ended, for a day: when each was last heard of, whether it left in good order, and which nodes took over
-- what it held. The row in `nodes` is the fence of a live node and goes with it.
CREATE TABLE former_nodes (
    node         bigint PRIMARY KEY,
    host         text NOT NULL,
    pid          integer NOT NULL,
    address      text,
    roles        text[] NOT NULL,
    version      text NOT NULL,
    tzdata       text NOT NULL,
    started_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,        -- its last heartbeat
    ended_at     timestamptz NOT NULL DEFAULT now(),
    lost         boolean NOT NULL,            -- it stopped answering; false: it left in good order
    partitions   integer NOT NULL,            -- how many it led at its end
    dismissed_at timestamptz                  -- an operator has seen that it was lost
);
CREATE INDEX former_nodes_ended ON former_nodes (ended_at);

CREATE TABLE node_take_overs (
    node       bigint NOT NULL,               -- the one that ended
    taker      bigint NOT NULL,
    partitions integer NOT NULL DEFAULT 0,    -- that the taker leads since then
    runs       integer NOT NULL DEFAULT 0,    -- that the taker returned to their queues
    at         timestamptz NOT NULL,          -- of the last of them
    PRIMARY KEY (node, taker)
);
