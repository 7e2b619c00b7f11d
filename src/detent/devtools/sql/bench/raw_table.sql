-- Which jobs the raw limit writes together. An index covers it, so that reading a batch costs next to nothing.
CREATE TABLE IF NOT EXISTS bench_batches (batch integer NOT NULL, job bigint NOT NULL, PRIMARY KEY (batch, job))
