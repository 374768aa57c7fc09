"""The Franka Emika Panda with its hand: `panda.urdf`, and `build`, the program that writes it."""
