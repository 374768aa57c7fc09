"""How demonstrations come about: one attempt, and which attempts fill a data set."""
