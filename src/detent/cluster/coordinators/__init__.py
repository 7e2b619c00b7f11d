"""Which node leads which partition, kept in PostgreSQL or in an external service."""
