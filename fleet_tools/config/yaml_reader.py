"""The fast reader of YAML, apart from `values`, so that importing the package stays light."""

import yaml

FastLoader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""Reads by libyaml where PyYAML has it, about ten times faster; its errors name no source."""
