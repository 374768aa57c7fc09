"""Import of a mesh as a model folder: `python -m fleet_tools.assets import --help`.

    mesh_file -> scale -> repair -> enclosed_body -> simplify (visual geometry)
                                                  -> face_cuts, convex_decomposition
                                                     -> outer_polytope -> fidelity
                                                     (collision geometry)

`importer` calls them in this order, and `joint` joins two imported parts. Each step is a pure
function in a module of its own. What it had to change or to guess it describes in a note, and what
it cannot repair it refuses with a `ConfigError` that names the remedy. Notes are part of the
folder's `import.json`: a new wording changes the bytes that are written.
"""
