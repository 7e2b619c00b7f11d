"""Whether jobs are as they should be, who is told when they are not, and a sign of life to the outside."""
