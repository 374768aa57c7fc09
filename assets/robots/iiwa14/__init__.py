"""The KUKA LBR iiwa 14 R820 with a hand of ours: `iiwa14.urdf`, and `build`, which writes it."""
