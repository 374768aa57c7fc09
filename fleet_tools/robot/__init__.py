"""Arms as values, and their operational-space control."""
