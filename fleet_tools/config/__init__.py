"""What YAML files may say: task files and their building blocks, as frozen values."""
