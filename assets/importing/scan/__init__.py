"""Surfaces of scanned point clouds; the rest of the import takes them like meshes.

    cloud_files -> views -> alignment (--align) -> table (--table) -> surface

`reconstruction` calls them in this order. The geometry is Open3D's, with its extra `open3d`; only
the files are read without it. The same points give the same surface, whatever their order: they
are sorted first, and Poisson's equation is solved by one thread.
"""
