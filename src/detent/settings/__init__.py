"""Where settings come from, and what each of them means."""
