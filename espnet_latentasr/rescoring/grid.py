"""A YAML of rescoring rules with lists of values to try; expands it, chooses nothing.

    mbr_pll:
      rule: ../decode_mbr_pll.yaml
      try: {posterior.tau: [1, 2, 5, 10, 20]}

``rule`` is a rescoring configuration: a mapping, or a YAML relative to this one.  ``try`` gives values
for dotted keys; every combination is tried, in this order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.config import load_yaml, merge
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.config import RescoreConfig, rescore_config


@dataclass(frozen=True)
class Trial:
    """One combination of a rule: its values by dotted key, its mapping, and that as a configuration."""

    values: dict[str, Any]
    mapping: dict[str, Any]
    config: RescoreConfig


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return {a: {b: value}} for the dotted key ``a.b``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def trials(mapping: dict[str, Any], where: str) -> Iterator[Trial]:
    """Yield every combination of one rule in the order of its lists."""
    if odd := sorted(mapping.keys() - {"rule", "try"}):
        raise ConfigError(f"{where}.{odd[0]}: unknown; 'rule' and 'try' expected")
    lists = mapping.get("try") or {}
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}.try.{key}: {values!r}, a list of values expected")
    for combination in itertools.product(*lists.values()):
        values = dict(zip(lists, combination))
        rule = mapping.get("rule") or {}
        for key, value in values.items():
            rule = merge(rule, nested(key, value))
        yield Trial(values, rule, rescore_config(rule, f"{where} {values}"))


def load_grid(path: Path) -> dict[str, list[Trial]]:
    """Read a grid.

    Raises:
        ConfigError: no mapping of rules, or a combination that is no valid configuration.
    """
    found = {}
    for name, entry in load_yaml(path).items():
        where = f"{path}: {name}"
        if not isinstance(entry, dict):
            raise ConfigError(f"{where}: {entry!r}, a mapping with 'rule' and 'try' expected")
        if isinstance(rule := entry.get("rule"), str):
            entry = entry | {"rule": load_yaml(path.parent / rule)}
        found[str(name)] = list(trials(entry, where))
    if not found:
        raise ConfigError(f"{path}: no rule in it")
    return found
