"""A recogniser's files, a local folder or a hub id, and what identifies them; loads no weights."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.reading import read_json

DTYPES = ("float32", "bfloat16")
COMMIT = re.compile("[0-9a-f]{40}")  # a shorter one may also be the name of a branch, which can move


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
    if folder is None and not COMMIT.fullmatch(revision):
        raise ConfigError(
            f"backbone_conf.revision: '{revision}' is not a commit hash of 40 hex digits; a branch or "
            "tag can move, so that results would not name their weights"
        )
    return folder


def model_type(folder: Path) -> str | None:
    """What a folder's config.json says it is."""
    found = read_json(folder / "config.json", "a model's configuration", dict, ConfigError)
    return found.get("model_type")


def _model_type_on_hub(name: str, revision: str) -> str | None:
    from transformers import PretrainedConfig

    return PretrainedConfig.get_config_dict(name, revision=revision)[0].get("model_type")


def source(name: str, revision: str | None, kind: str) -> tuple[Path | None, dict[str, str | bool]]:
    """The local folder, if it is one, and the library's keywords for the place.

    Code that a repository brings along is never run, and never asked about: a class of the library's
    own is loaded, or nothing.

    Raises:
        ConfigError: what ``local_folder`` refuses, or a model of another kind.
    """
    folder = local_folder(name, revision)
    found = _model_type_on_hub(name, revision) if folder is None else model_type(folder)
    if found != kind:
        raise ConfigError(
            f"{folder or name}/config.json: model_type '{found}', expected '{kind}' (backbone_conf.kind)"
        )
    return folder, {"trust_remote_code": False} | ({"revision": revision} if folder is None else {})


def check_dtype(dtype: str) -> None:
    """Refuse other number types (float16 overflows in some decoders)."""
    if dtype not in DTYPES:
        raise ConfigError(f"backbone_conf.dtype: '{dtype}' is not float32 or bfloat16")


def fingerprint(folder: Path | None, name: str, revision: str | None) -> str:
    """SHA-256 over a local folder's weights and settings, or the hub id with its revision."""
    if folder is None:
        return f"{name}@{revision}"
    if not any(folder.glob("*.safetensors")):
        # Other weight files are not hashed, so that changed ones would go by the same name.
        raise ConfigError(
            f"{folder}: no .safetensors file; weights in other formats can hold code and are not read: "
            "save the model again with save_pretrained"
        )
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".json", ".jinja"} and path.is_file():
            digest.update(path.name.encode() + b"\0")
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"


def download(name: str, revision: str | None, files: Sequence[str]) -> dict[str, Path]:
    """Get files of a hub repository at a commit, from the library's cache where they are there.

    Needs no network for what was downloaded before.  A token, where the repository needs one, is the
    library's own business: it is never asked for, logged or stored here.

    Raises:
        ConfigError: no commit was named, or a file cannot be had.
    """
    if revision is None or not COMMIT.fullmatch(revision):
        raise ConfigError(
            f"'{name}' is no local folder or zip, and a hub id needs its revision, a commit hash of 40 "
            f"hex digits (got {revision!r}): a branch or tag can move"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    found = {}
    for file in files:
        logging.info("%s@%s: %s", name, revision, file)
        try:
            found[file] = Path(hf_hub_download(name, file, revision=revision))
        except (LocalEntryNotFoundError, ConnectionError) as error:
            raise ConfigError(
                f"{name}@{revision}: {file} is not in the cache and the hub cannot be reached "
                f"({type(error).__name__}); download it where there is network and give folder or zip"
            ) from None
        except (EntryNotFoundError, HfHubHTTPError) as error:
            raise ConfigError(
                f"{name}@{revision}: {file} cannot be had ({type(error).__name__}): no such repository, "
                "commit or file, or no access to it (log in with 'hf auth login')"
            ) from None
    return found
