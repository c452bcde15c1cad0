"""Which experiments a family of ``conf/families.yaml`` consists of; reads no result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from espnet_latentasr.config import load_yaml
from espnet_latentasr.errors import ConfigError

SYSTEM_KEYS = {"asr", "decode", "num_activation"}
FAMILY_KEYS = {"decode", "reference", "systems"}


@dataclass(frozen=True)
class System:
    """One row of a family's table: a trained configuration and how it is decoded."""

    name: str
    config: str
    decode: str
    num_activation: int

    def tag(self, seed: int, asr_args: str) -> str:
        """Name of the experiment below exp/asr_<tag>; equal trainings share it."""
        extra = re.sub(r"[^A-Za-z0-9.]+", "_", asr_args).strip("_")
        parts = [Path(self.config).stem, f"act{self.num_activation}", f"seed{seed}"]
        return "_".join([*parts, *([extra] if extra else [])])


@dataclass(frozen=True)
class Family:
    """Systems in the order of the file; ``reference``: the one others are compared with, if any."""

    name: str
    systems: tuple[System, ...]
    reference: str | None


def read_family(path: str | Path, name: str, num_activation: int) -> Family:
    """Read one family.

    Args:
        num_activation: training utterances of systems that set none of their own.

    Raises:
        ConfigError: unknown family or key, a system without a configuration.
    """
    found = load_yaml(path)
    if name not in found:
        raise ConfigError(f"{path}: no family '{name}'; there are {', '.join(map(str, found))}")
    family = found[name]
    where = f"{path}: {name}"
    if not isinstance(family, dict) or not isinstance(family.get("systems"), dict):
        raise ConfigError(f"{where}: {family!r:.200}, a mapping with 'systems' of names expected")
    if odd := sorted(map(str, set(family) - FAMILY_KEYS)):
        raise ConfigError(f"{where}: unknown key {odd[0]!r}; known: {', '.join(sorted(FAMILY_KEYS))}")
    systems = []
    for label, keys in family["systems"].items():
        if not isinstance(keys, dict) or not isinstance(keys.get("asr"), str):
            raise ConfigError(f"{where}: system '{label}' needs 'asr', a training configuration")
        if odd := sorted(map(str, set(keys) - SYSTEM_KEYS)):
            raise ConfigError(f"{where}: system '{label}': unknown key {odd[0]!r}")
        decode = keys.get("decode", family.get("decode"))
        if not isinstance(decode, str | None):
            raise ConfigError(f"{where}: system '{label}': decode {decode!r:.200}, file names expected")
        if decode is None:
            raise ConfigError(f"{where}: system '{label}' has no 'decode' and the family has none")
        size = keys.get("num_activation", num_activation)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(
                f"{where}: system '{label}': num_activation {size!r}, a number >= 1 expected"
            )
        systems.append(System(str(label), keys["asr"], decode, size))
    reference = family.get("reference")
    if reference is not None and reference not in [system.name for system in systems]:
        raise ConfigError(f"{where}: reference '{reference}' is none of its systems")
    return Family(name, tuple(systems), reference)


def plan(families: Sequence[Family], seeds: Sequence[int], asr_args: str) -> list[tuple[str, ...]]:
    """(tag, configuration, decoding configurations, activation size, seed) of every training, once.

    Seed by seed, so that an interrupted family is complete for the first seeds.
    """
    rows = []
    for seed in seeds:
        joined: dict[str, tuple[System, list[str]]] = {}
        for system in (system for family in families for system in family.systems):
            _, decodes = joined.setdefault(system.tag(seed, asr_args), (system, []))
            if system.decode not in decodes:
                decodes.append(system.decode)
        rows += [
            (tag, system.config, " ".join(decodes), str(system.num_activation), str(seed))
            for tag, (system, decodes) in joined.items()
        ]
    return rows
