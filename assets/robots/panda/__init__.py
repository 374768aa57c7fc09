"""The Franka Emika Panda with its hand: `panda.urdf`, and the code that writes it."""
