"""Import of a mesh as a model folder: `python -m fleet_tools.assets import --help`.

    mesh_file -> repair -> enclosed_body -> simplify (visual geometry)
                                         -> convex_decomposition -> outer_polytope
                                            -> collision_geometry

`importer` calls them in this order, `joint` joins two imported parts, and `program` says what was
done. Each step is a pure function. What it had to change or to guess it describes in a note, and
what it cannot repair it refuses with a `ConfigError` that names the remedy. Notes are part of the
folder's `import.json`: a new wording changes the bytes that are written.

Libraries for meshes may abort or hang for some surfaces. They run in a child process
(`fleet_tools.parallel.apart`); where one fails for a part, its convex hull takes its place, with a
warning.
"""
