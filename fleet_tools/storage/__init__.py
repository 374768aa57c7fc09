"""Files that survive a crash: atomic writes, append-only logs, folders of records, provenance."""
