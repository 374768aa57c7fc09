"""Import of a mesh as a model folder: `python -m fleet_tools.assets import --help`.

    mesh_file -> repair -> enclosed_body -> simplify (visual geometry)
                                         -> convex_decomposition -> outer_polytope
                                            -> collision_geometry
    scan_files -> scan_surface (of a scanned thing, which goes on as a mesh)

`importer` calls them in this order, `joint` joins two imported parts, and `program` says what was
done. Each step is a pure function. What it had to change or to guess it describes in a note, and
what it cannot repair it refuses with a `ConfigError` that names the remedy. Notes are part of the
folder's `import.json`: a new wording changes the bytes that are written.

Libraries for meshes may abort or hang for some surfaces. They run in a child process
(`fleet_tools.parallel.apart`); where one fails for a part, its convex hull takes its place, with a
warning.

The geometry of scans is Open3D's, with its extra `open3d`; only the files are read without it. The
same points give the same surface, whatever their order: they are sorted first, and Poisson's
equation is solved by one thread.
"""
