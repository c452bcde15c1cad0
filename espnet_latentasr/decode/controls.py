"""What else could stand at the latent positions: the controls that tell whether content matters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.latent.adapter import Adapter


def controlled_updates(
    kind: str, own: Tensor, adapter: Adapter, keys: Sequence[str], donors: Tensor | None
) -> Tensor:
    """g_k delta_k (B, N, D) to inject instead of the ``own`` ones of the same shape.

    Args:
        kind: ``pause`` (zero: x = e_LT), ``mean`` (of the training set), ``swapped`` (``donors``),
            ``random`` (the own length in a direction that follows from the utterance's key).
        donors: (B, N, D) the updates of each utterance's donor.
    """
    if kind == "pause":
        return torch.zeros_like(own)
    if kind == "mean":
        return adapter.mean_update.to(own).expand_as(own)
    if kind == "swapped":
        if donors is None:
            raise ValueError("latents: swapped needs each utterance's donor")
        return donors
    if kind == "random":
        drawn = torch.stack([_direction(key, own.shape[1:]) for key in keys]).to(own)
        return functional.normalize(drawn, dim=-1) * own.norm(dim=-1, keepdim=True)
    raise ValueError(f"unknown kind of latents '{kind}'")


def _direction(key: str, shape: torch.Size) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(f"random latents {key}".encode()).digest()[:8], "big")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed % 2**63))
