"""What is kept, for how long, and where it goes after that."""
