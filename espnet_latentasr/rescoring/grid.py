"""A YAML of rescoring rules with lists of values to try; expands it, chooses nothing.

    mbr_pll:
      rule: ../decode_mbr_pll.yaml
      try: {posterior.tau: [1, 2, 5, 10, 20]}

``rule`` is a rescoring configuration: a mapping, or a YAML relative to this one.  ``try`` gives values
for dotted keys; every combination is tried, in this order.  ``simplex`` gives dotted keys that share 1
in steps (the first key's largest share first); with ``try``, each of its combinations is tried with all:

    three_way:
      rule: {kind: argmax, term_unit: list_sd}
      simplex: {keys: [score.am, score.pll, score.value], step: 0.1}
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.config import load_yaml, merge
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.config import RescoreConfig, rescore_config

MOST = 100_000  # combinations of a rule: each is tried on all lists


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


def simplex(mapping: Any, where: str) -> list[dict[str, float]]:
    """Return all ways to share 1 among ``keys`` in multiples of ``step``.

    Raises:
        ConfigError: fewer than two keys, or a step of which 1 is no multiple.
    """
    keys = mapping.get("keys") if isinstance(mapping, dict) else None
    step = mapping.get("step") if isinstance(mapping, dict) else None
    if not isinstance(keys, list) or len(set(map(str, keys))) < 2 or mapping.keys() != {"keys", "step"}:
        raise ConfigError(f"{where}: {mapping!r}, 'keys' (two or more) and 'step' expected")
    number = isinstance(step, (int, float)) and not isinstance(step, bool) and 0 < step <= 1
    number = number and 1 / step < MOST
    parts = round(1 / step) if number else 0
    # All are gone through, also those that add up to more than 1.
    if number and (len(keys) - 1) * math.log(parts) > math.log(100 * MOST):
        raise ConfigError(f"{where}: steps of {step!r} among {len(keys)} keys: over {MOST} combinations")
    if not number or abs(parts * step - 1) > 1e-9:
        raise ConfigError(
            f"{where}.step: {step!r}, a fraction such as 0.1, of which 1 is a multiple, expected"
        )
    counts = itertools.product(range(parts, -1, -1), repeat=len(keys) - 1)
    rows = [(*head, parts - sum(head)) for head in counts if sum(head) <= parts]
    return [{str(key): n / parts for key, n in zip(keys, row)} for row in rows]


def trials(mapping: dict[str, Any], where: str) -> Iterator[Trial]:
    """Yield every combination of one rule in the order of its lists."""
    if odd := sorted(map(str, mapping.keys() - {"rule", "try", "simplex"})):
        raise ConfigError(f"{where}.{odd[0]}: unknown; 'rule' and 'try' expected")
    for part in ("rule", "try"):
        if not isinstance(mapping.get(part), dict | None):
            raise ConfigError(f"{where}.{part}: {mapping[part]!r:.200}, a mapping expected")
    lists = {str(key): values for key, values in (mapping.get("try") or {}).items()}
    shares = [{}] if "simplex" not in mapping else simplex(mapping["simplex"], f"{where}.simplex")
    if both := sorted(lists.keys() & shares[0].keys()):
        raise ConfigError(f"{where}: {both[0]} is in 'try' and in 'simplex'; it can be in one of them")
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}.try.{key}: {values!r}, a list of values expected")
    if len(shares) * math.prod(map(len, lists.values())) > MOST:
        raise ConfigError(f"{where}: over {MOST} combinations; make the lists shorter")
    for share, combination in itertools.product(shares, itertools.product(*lists.values())):
        values = share | dict(zip(lists, combination))
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
