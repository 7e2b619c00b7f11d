-- Checkpoints give access to nothing; benchmarks begin with one.
CREATE ROLE detent LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS IN ROLE pg_checkpoint
