"""From a shared adapter (folder, zip, hub id) to a ``Loaded`` recogniser; loads tensors, never code."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from espnet_latentasr.adaptation.base import Method
from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.backbone.frozen import RECORD, read_frozen
from espnet_latentasr.backbone.hub import download
from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.config import BackboneConfig
from espnet_latentasr.decode.loading import Loaded, check_fit
from espnet_latentasr.decode.pack import COPIED
from espnet_latentasr.decode.pack_format import ADAPTER, CONFIG, Pack, read_folder, read_zip
from espnet_latentasr.decode.recogniser import Recogniser
from espnet_latentasr.errors import ConfigError, DataError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Pretrained:
    """A loaded pack.  ``metadata``: what every result of it says about where it comes from."""

    pack: Pack
    loaded: Loaded
    metadata: Mapping[str, Any]


def find_pack(name: str | Path, revision: str | None = None) -> Pack:
    """Read a pack from a folder, a zip or, with its commit, a hub repository.

    Raises:
        ConfigError: nothing of that name, a hub id without its commit, a revision of something local.
        DataError: a damaged pack.
    """
    path = Path(name)
    if path.exists():
        if revision is not None:
            raise ConfigError(f"revision '{revision}': without effect on '{name}', which is no hub id")
        return read_folder(path) if path.is_dir() else read_zip(path)
    if not HUB_ID.fullmatch(str(name)) or path.suffix == ".zip":
        raise ConfigError(f"'{name}': no such folder or zip, and no hub id (OWNER/NAME)")
    files = download(str(name), revision, (CONFIG, ADAPTER))
    return read_folder(files[CONFIG].parent)


def recogniser_config(pack: Pack, backbone: str | Path | None) -> BackboneConfig:
    """Where to take the frozen recogniser from.

    Args:
        backbone: None (the hub, as the pack names it), a model's folder, a folder of stage 5, or
            ``id@commit``.

    Raises:
        ConfigError: the pack's recogniser is on no hub and no other was named, or nothing of that name.
    """
    base = pack.recogniser
    if backbone is None:
        if base.local:
            raise ConfigError(
                f"this adapter was trained on a local recogniser, '{base.name}' ({base.fingerprint}), "
                "which no hub has: say where it is with backbone=FOLDER (commands: --backbone FOLDER)"
            )
        return base.config()
    folder = Path(backbone)
    if (folder / RECORD).is_file():
        found = read_frozen(folder).config
        return dataclasses.replace(found, dtype=base.dtype)
    if folder.exists():
        return BackboneConfig(base.kind, str(folder), None, base.dtype)
    name, at, revision = str(backbone).partition("@")
    if not at:
        raise ConfigError(f"backbone '{backbone}': no such folder; a hub id needs its commit: ID@COMMIT")
    return BackboneConfig(base.kind, name, revision, base.dtype)


def check_device(device: str, dtype: str) -> str:
    """The device to run on; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        built = "" if torch.version.cuda else f"; this torch ({torch.__version__}) is built without CUDA"
        raise ConfigError(
            f"device '{device}': torch sees no GPU{built}; use device='cpu' (commands: --ngpu 0), which "
            "gives the same texts, slower"
        )
    if device == "cpu" and dtype == "bfloat16":
        logging.warning(
            "the recogniser runs in bfloat16, as its adapter was trained with; many CPUs are slow at it"
        )
    return device


def check_recogniser(pack: Pack, backbone: Backbone, allow_other: bool) -> bool:
    """Whether ``backbone`` is another recogniser than the one trained on; warns where that is allowed.

    Raises:
        ConfigError: it is, and ``allow_other`` is False.
    """
    base = pack.recogniser
    if backbone.fingerprint == base.fingerprint:
        return False
    what = f"trained on '{base.name}' {base.fingerprint}, but this recogniser is {backbone.fingerprint}"
    if not allow_other:
        raise ConfigError(
            f"{what}; an adapter fits the recogniser it was trained on, in its revision. If the two are "
            "the same weights in other files, or to try it anyway: allow_other_backbone=True (commands: "
            "--allow_other_backbone true), which every result then says"
        )
    logging.warning("adapter %s: %s; its results are not those of its card", pack.model, what)
    return True


def load_packed_method(pack: Pack, backbone: Backbone) -> Method:
    """Build the method and load its tensors, strictly; what it copies of a recogniser is this one's.

    Raises:
        ConfigError: tensors that do not fit the configuration or the recogniser.
        DataError: a damaged adapter file.
    """
    try:
        states = safetensors.torch.load(pack.adapter)
    except Exception as error:  # a header may name any shape and type, which nobody else checks
        raise DataError(f"{ADAPTER}: damaged ({error}); get it again") from None
    method = build_method(pack.method, backbone)
    expected = {key: value for key, value in method.state_dict().items() if key not in COPIED}
    check_fit(states, expected, ADAPTER)
    for key, value in states.items():
        if not bool(torch.isfinite(value).all()):
            raise DataError(f"{ADAPTER}: {key} has values that are not finite; get it again")
    method.load_state_dict(states, strict=False)  # strict but for `COPIED`, see above
    return method.place(backbone.embedding_table.device)


def load_pack(
    pack: Pack,
    backbone: str | Path | None = None,
    device: str = "cpu",
    allow_other_backbone: bool = False,
) -> Pretrained:
    """Load the frozen recogniser and the adapter.

    Raises:
        ConfigError: see `recogniser_config`, `check_device`, `check_recogniser`, `load_packed_method`.
    """
    config = recogniser_config(pack, backbone)
    found = load_backbone(config, check_device(device, config.dtype))
    other = check_recogniser(pack, found, allow_other_backbone)
    method = load_packed_method(pack, found)
    recogniser = Recogniser(found, method, pack.method.prompt)
    # Another recogniser makes another system: nothing that identifies the one must name the other.
    identity = f"{pack.model}-on-other" if other else pack.model
    metadata = {
        "model": identity,
        "adaptation": pack.method.adaptation,
        "backbone": found.fingerprint,
        "trained_on": pack.recogniser.fingerprint,
        "other_backbone": other,
    }
    return Pretrained(pack, Loaded(recogniser, identity, found.fingerprint), metadata)
