"""Pure values and rules: jobs, runs, schedules, retries, the ledger. No I/O and no clock: time is an argument."""
