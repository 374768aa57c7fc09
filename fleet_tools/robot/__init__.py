"""The Panda arm and its operational-space control."""
