"""Photographs: scenes and episodes rendered by Blender instead of VTK."""
