"""Task files, one YAML each."""

if __name__ != "fleet_tools.task_configs":  # a checkout's root on sys.path would import it twice
    raise ImportError(f"Import fleet_tools.task_configs instead of {__name__}.")
