"""What every room may use: the command line's parts, lazy imports, the package's own files."""
