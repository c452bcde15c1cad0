"""The record of a frozen recogniser: which weights an experiment stands on; knows no model library."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from espnet_latentasr.config import BackboneConfig, build
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_json

if TYPE_CHECKING:
    from espnet_latentasr.backbone.base import Backbone

RECORD = "backbone.json"
TOKENS = "tokens.txt"


@dataclass(frozen=True)
class Frozen:
    """What stage 5 wrote down."""

    config: BackboneConfig
    fingerprint: str
    parameters: int
    library: str

    def check(self, backbone: Backbone) -> None:
        """Refuse a recogniser with other weights than the recorded ones."""
        if backbone.fingerprint != self.fingerprint:
            raise ConfigError(
                f"backbone '{self.config.name}' has fingerprint {backbone.fingerprint}, but stage 5 "
                f"recorded {self.fingerprint}: its files changed; run again from stage 5"
            )


def write_frozen(folder: Path, record: Frozen, tokens: list[str]) -> None:
    """Write the record and the token list below ``folder``."""
    atomic_write_text(folder / TOKENS, "".join(f"{token}\n" for token in tokens))
    atomic_write_text(folder / RECORD, json.dumps(dataclasses.asdict(record), indent=2) + "\n")


def read_frozen(folder: str | Path) -> Frozen:
    """Read what ``write_frozen`` wrote.

    Raises:
        ConfigError: stage 5 has not run, or its file is damaged.
    """
    path = Path(folder) / RECORD
    if not path.is_file():
        raise ConfigError(f"{path}: not found; stage 5 writes it")
    what = "the record of a recogniser (damaged? run stage 5 again)"
    return build(Frozen, read_json(path, what, dict, ConfigError), f"{path}: damaged")
