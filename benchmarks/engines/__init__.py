"""A world of Drake's, advanced by MuJoCo.

mujoco_model       bodies, joints and shapes of a plant as a model of MuJoCo's
mujoco_simulation  a simulation whose time passes in MuJoCo, and whose world is Drake's
"""
