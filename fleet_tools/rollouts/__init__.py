"""Episodes as values, and the loop that makes them; collection and evaluation share it."""
