"""The folder, or zip of the same bytes, in which a trained adapter is shared; knows files, no model.

    config.json           recogniser (named, never contained), method, decoding rule, check sums, versions
    adapter.safetensors   the trained tensors and nothing else: a format that holds no code
    README.md             model card
    meta.yaml             the same files under ESPnet's names, as its ``main_funcs.pack_funcs`` lists them

All are at the top.  A zip is read in memory: nothing of it is ever unpacked.  ``meta.yaml`` calls
``config.json`` a plain file, so that ESPnet's unpacking leaves its bytes alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.config import (
    ADAPTATIONS,
    BackboneConfig,
    DecodeConfig,
    ModelConfig,
    build,
    config_hash,
    model_config,
)
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_path
from espnet_latentasr.reading import parse_json, read_text

CONFIG, ADAPTER, CARD, META = "config.json", "adapter.safetensors", "README.md", "meta.yaml"
FORMAT, VERSION = "espnet_latentasr adapter", 1
MAX_CONFIG_BYTES = 1 << 20
MAX_RATIO = 20  # bytes of weights from one byte of a zip; they hardly shrink at all
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say


@dataclass(frozen=True)
class Recogniser:
    """The frozen recogniser an adapter was trained on: named, not contained.

    ``local``: it was a folder on the trainer's machine, ``name`` is that folder's name alone.
    """

    kind: str
    name: str
    revision: str | None
    dtype: str
    fingerprint: str
    parameters: int
    local: bool

    def config(self) -> BackboneConfig:
        """As a configuration; of a local one the name says nothing about where it is here."""
        return BackboneConfig(self.kind, self.name, self.revision, self.dtype)


@dataclass(frozen=True)
class Pack:
    """A trained adapter with all that loading it needs.

    model: what it is called in decodings' ``identity.json``.  decode, decode_tag: the decoding rule it
    is meant to be used with and its name, None: the kind's default.  language: code that is assumed
    where a caller names none, None: every call must name one.  adapter: the file's content.
    """

    model: str
    recogniser: Recogniser
    method: ModelConfig
    decode: DecodeConfig | None
    decode_tag: str | None
    language: str | None
    parameters: int
    versions: Mapping[str, str]
    adapter: bytes

    def __post_init__(self) -> None:
        method = dataclasses.replace(self.method, backbone=self.recogniser.config())
        object.__setattr__(self, "method", method)


def _plain(value: Any) -> Any:
    """A dataclass or mapping as strict JSON has it: infinite numbers are words, which `build` reads."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _method(config: ModelConfig) -> dict[str, Any]:
    """The keys of ``config.yaml`` that make the method, without the recogniser's."""
    sections = ("prompt", "schedule", *ADAPTATIONS[config.adaptation])
    named = {f"{name}_conf": _plain(getattr(config, name)) for name in sections}
    return {"adaptation": config.adaptation, **named}


def sha256(data: bytes) -> str:
    """SHA-256 (hex)."""
    return hashlib.sha256(data).hexdigest()


def config_text(pack: Pack) -> str:
    """Content of ``config.json``."""
    method = _method(pack.method)
    adapter = {"file": ADAPTER, "bytes": len(pack.adapter), "sha256": sha256(pack.adapter)}
    found = {
        "format": FORMAT,
        "format_version": VERSION,
        "model": pack.model,
        "backbone": dataclasses.asdict(pack.recogniser),
        "method": method,
        "method_hash": config_hash(method),
        "decode": None if pack.decode is None else _plain(pack.decode),
        "decode_tag": pack.decode_tag,
        "language": pack.language,
        "adapter": adapter | {"parameters": pack.parameters},
        "versions": dict(pack.versions),
    }
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parse_config(text: str, adapter: bytes, where: str) -> Pack:
    """Read ``config.json`` and check the adapter's bytes against it.

    Raises:
        ConfigError: not such a file, of a later format, edited by hand, or with unknown keys.
        DataError: the adapter is not the one it describes.
    """
    found = parse_json(text, where, "the config.json of espnet_latentasr.bin.pack", ConfigError)
    try:
        if found["format"] != FORMAT:
            raise KeyError(f"format '{found['format']}', '{FORMAT}' expected")
        if found["format_version"] != VERSION:
            raise ConfigError(
                f"{where}: format_version {found['format_version']!r}, this installation reads "
                f"{VERSION}; it was written by espnet_latentasr {found['versions']['espnet_latentasr']}"
            )
        method, promised = found["method"], found["adapter"]
        if config_hash(method) != found["method_hash"]:
            raise ConfigError(
                f"{where}: its method is not that of method_hash {found['method_hash']}: the file was "
                "edited after packing; pack the experiment again"
            )
        if len(adapter) != promised["bytes"] or sha256(adapter) != promised["sha256"]:
            raise DataError(
                f"{where}: {ADAPTER} has {len(adapter)} bytes, SHA-256 {sha256(adapter)}; "
                f"{promised['bytes']} bytes, {promised['sha256']} expected: damaged or exchanged; get it "
                "again"
            )
        sections = {k.removesuffix("_conf"): v for k, v in method.items() if k != "adaptation"}
        decode = found["decode"]
        return Pack(
            str(found["model"]),
            build(Recogniser, found["backbone"], f"{where}: backbone"),
            _model(method["adaptation"], sections, where),
            None if decode is None else build(DecodeConfig, decode, f"{where}: decode"),
            found["decode_tag"],
            found["language"],
            int(promised["parameters"]),
            {str(key): str(value) for key, value in found["versions"].items()},
            adapter,
        )
    except (ConfigError, DataError):
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{where}: not the config.json of espnet_latentasr.bin.pack ({error})"
        ) from None


def _model(adaptation: Any, sections: dict[str, Any], where: str) -> ModelConfig:
    try:
        return model_config(adaptation, sections)
    except ConfigError as error:
        raise ConfigError(f"{where}: method: {error}") from None


def meta_text(versions: Mapping[str, str]) -> str:
    """Content of ``meta.yaml``: ESPnet's keys, the names its ASR inference takes; no time of day."""
    import yaml

    keys = {key: versions[key] for key in ("python", "torch", "espnet") if key in versions}
    files = {"asr_train_config": CONFIG, "asr_model_file": ADAPTER}
    return yaml.safe_dump({"files": files, "yaml_files": {}, "timestamp": 0.0, **keys})


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a pack's files; ``config.json`` last, so that a folder without it is an unfinished one."""
    (folder / CONFIG).unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: (name == CONFIG, name)):
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """The same files as a zip: the same input gives the same bytes, stored and without times.

    ``meta.yaml`` is the first member, as in ESPnet's.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files, key=lambda name: (name != META, name)):
            member = zipfile.ZipInfo(name, _ZIP_TIME)
            member.create_system, member.external_attr = 3, 0o100644 << 16
            archive.writestr(member, files[name])
    return buffer.getvalue()


def read_folder(folder: Path) -> Pack:
    """Read a pack's folder.

    Raises:
        ConfigError, DataError: see `parse_config`; or a file is missing.
    """
    for name in (CONFIG, ADAPTER):
        if not (folder / name).is_file():
            raise DataError(f"{folder}: no {name}: not a folder of bin.pack, or an unfinished one")
    text = read_text(folder / CONFIG, "a file of bin.pack", ConfigError)
    return parse_config(text, (folder / ADAPTER).read_bytes(), str(folder / CONFIG))


def read_zip(path: Path) -> Pack:
    """Read a pack's zip without unpacking it; other members than its two are not looked at.

    Raises:
        ConfigError, DataError: see `parse_config`; or no zip, a damaged one or one that lacks a file.
    """
    try:
        text, adapter = _members(path)
    except DataError:
        raise
    except KeyError as error:
        raise DataError(f"{path}: {error.args[0]}; a zip of espnet_latentasr.bin.pack expected") from None
    except Exception as error:  # the library and its decompressors raise whatever they do
        raise DataError(f"{path}: not a readable zip ({error}); get it again") from None
    return parse_config(text, adapter, f"{path}:{CONFIG}")


def _members(path: Path) -> tuple[str, bytes]:
    """``config.json`` and, if it is as long as that says, the adapter of a zip."""
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(CONFIG).file_size > MAX_CONFIG_BYTES:
            raise DataError(f"{path}: {CONFIG} of over {MAX_CONFIG_BYTES} bytes: no pack of ours")
        text = archive.read(CONFIG).decode("utf-8")
        member = archive.getinfo(ADAPTER)
        try:
            promised = json.loads(text)["adapter"]["bytes"]
        except (ValueError, KeyError, TypeError, RecursionError):
            promised = None  # `parse_config` says what is wrong
        if promised != member.file_size:
            return text, b""
        # Before anything is inflated: a few bytes of a zip can stand for any number.
        if member.file_size > MAX_RATIO * member.compress_size + MAX_CONFIG_BYTES:
            raise DataError(
                f"{path}: {ADAPTER} of {member.file_size} bytes in {member.compress_size}: weights are "
                "never packed so small; get it again"
            )
        return text, archive.read(ADAPTER)
