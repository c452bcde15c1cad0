"""A recogniser's files, a local folder or a hub id, and what identifies them; loads no weights."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from espnet_latentasr.errors import ConfigError

DTYPES = ("float32", "bfloat16")


def local_folder(name: str, revision: str | None) -> Path | None:
    """The folder ``name`` is, or None for a hub id with its revision.

    Raises:
        ConfigError: a folder without config.json, or a hub id without a commit hash.
    """
    folder = Path(name) if (Path(name) / "config.json").is_file() else None
    if folder is None and Path(name).is_dir():
        raise ConfigError(f"backbone_conf.name: folder '{name}' has no config.json")
    if folder is None and revision is None:
        raise ConfigError(
            f"backbone_conf.name: '{name}' is no local folder, and a hub id needs "
            "backbone_conf.revision (a commit hash), so that results name their weights"
        )
    if folder is None and not re.fullmatch("[0-9a-f]{7,40}", revision):
        raise ConfigError(
            f"backbone_conf.revision: '{revision}' is not a commit hash; a branch or tag can move, so "
            "that results would not name their weights"
        )
    return folder


def model_type(folder: Path) -> str | None:
    """What a folder's config.json says it is."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")


def _model_type_on_hub(name: str, revision: str) -> str | None:
    from transformers import PretrainedConfig

    return PretrainedConfig.get_config_dict(name, revision=revision)[0].get("model_type")


def source(name: str, revision: str | None, kind: str) -> tuple[Path | None, dict[str, str]]:
    """The local folder, if it is one, and the library's keywords for the place.

    Raises:
        ConfigError: what ``local_folder`` refuses, or a model of another kind.
    """
    folder = local_folder(name, revision)
    found = _model_type_on_hub(name, revision) if folder is None else model_type(folder)
    if found != kind:
        raise ConfigError(
            f"{folder or name}/config.json: model_type '{found}', expected '{kind}' (backbone_conf.kind)"
        )
    return folder, ({"revision": revision} if folder is None else {})


def check_dtype(dtype: str) -> None:
    """Refuse other number types (float16 overflows in some decoders)."""
    if dtype not in DTYPES:
        raise ConfigError(f"backbone_conf.dtype: '{dtype}' is not float32 or bfloat16")


def fingerprint(folder: Path | None, name: str, revision: str | None) -> str:
    """SHA-256 over a local folder's weights and settings, or the hub id with its revision."""
    if folder is None:
        return f"{name}@{revision}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".json", ".jinja"} and path.is_file():
            digest.update(path.name.encode() + b"\0")
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"
