"""What every long-running part is made of: loops, batches, the database's clock, failpoints."""
