"""Task files, one YAML each."""
