"""The Universal Robots UR5e with a hand of ours: `ur5e.urdf`, and `build`, which writes it."""
