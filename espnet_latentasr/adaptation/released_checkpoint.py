"""The authors' published adapter (``latentASR_adapter.pth``) as a model of ``loop: released``.

The file is a dictionary of sub-module state dictionaries (bfloat16) and settings.  It is read with
``weights_only``: nothing in it can run code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from espnet_latentasr.errors import DataError

# Their name -> (our module, parameters of the state dictionary)
MODULES = {
    "init_proj": ("adapter.initial_projection", ("weight", "bias")),
    "delta_proj": ("adapter.delta_projection", ("weight", "bias")),
    "step_proj": ("adapter.step_projection", ("weight",)),
    "injection_gate": ("adapter.gate", ("weight", "bias")),
    "value_head": ("value_head.linear", ("weight", "bias")),
}
TENSORS = {"step_embed": "adapter.step_embedding", "log_scale": "adapter.step_scale_rho"}
SETTINGS = ("epoch", "global_step", "model_id", "train_mode", "n_latent", "flags")


@dataclass(frozen=True)
class Released:
    """Parameters under our names (float32), and what the file says about itself."""

    parameters: dict[str, Tensor]
    steps: int
    width: int
    settings: dict[str, object]

    @property
    def count(self) -> int:
        """Number of parameters; 5,251,077 for the published one (D = 1024, N = 4)."""
        return sum(tensor.numel() for tensor in self.parameters.values())


def why_no_parameter(value: Tensor) -> str:
    """Say why a tensor from a file cannot be a parameter, "" if it can.

    A file can give a tensor any shape over a few stored numbers; what is made of it would need memory
    for all of them.
    """
    if value.layout is not torch.strided or value.is_quantized or not value.is_floating_point():
        return f"{value.dtype} {value.layout}, plain floating-point numbers expected"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"shape {tuple(value.shape)}, but {value.untyped_storage().nbytes()} bytes of numbers"
    return "" if bool(value.isfinite().all()) else "values that are not finite"


def read_released(path: str | Path) -> Released:
    """Read and check the authors' file.

    Raises:
        DataError: not such a file; keys that are missing, unknown or of another shape, by name; values
            that are not finite.
    """
    path = Path(path)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # the unpickler's refusals have no common type
        head = path.read_bytes()[:64]
        hint = ""
        if head.startswith(b"version https://git-lfs"):
            hint = "; it is a Git LFS pointer: fetch the file itself with 'git lfs pull'"
        raise DataError(f"{path}: not a checkpoint of tensors and plain values{hint} ({error})") from None
    if not isinstance(saved, dict):
        raise DataError(f"{path}: a dictionary expected, found {type(saved).__name__}")
    found: dict[str, Tensor] = {}
    for name, (ours, parts) in MODULES.items():
        module = saved.get(name)
        if not isinstance(module, dict):
            raise DataError(f"{path}: no state dictionary '{name}'; there are {sorted(map(str, saved))}")
        # Their gate is a sequence of a linear map and a sigmoid: keys may carry the map's number.
        plain = {str(key).rsplit(".", 1)[-1]: value for key, value in module.items()}
        tensors = all(isinstance(value, Tensor) for value in plain.values())
        if set(plain) != set(parts) or len(plain) != len(module) or not tensors:
            there = sorted(map(str, module))
            raise DataError(f"{path}: '{name}' has {there}, tensors {sorted(parts)} expected")
        found |= {f"{ours}.{part}": plain[part] for part in parts}
    for name, ours in TENSORS.items():
        value = saved.get(name)
        if isinstance(value, dict) and set(value) == {"weight"}:
            value = value["weight"]
        if not isinstance(value, Tensor):
            raise DataError(f"{path}: no tensor '{name}'; there are {sorted(map(str, saved))}")
        found[ours] = value
    for name, tensor in found.items():
        if problem := why_no_parameter(tensor):
            raise DataError(f"{path}: {name} has {problem}")
    steps, width = _sizes(path, found, saved)
    parameters = {name: tensor.detach().float().clone() for name, tensor in found.items()}
    settings = {
        key: value
        for key, value in saved.items()
        if key in SETTINGS or str(key).startswith("wer_")
    }
    return Released(parameters, steps, width, settings)


def _sizes(path: Path, found: dict[str, Tensor], saved: dict) -> tuple[int, int]:
    """N and D, which every shape must agree with."""
    embedding = found["adapter.step_embedding"]
    if embedding.dim() != 2:
        raise DataError(f"{path}: step_embed of shape {tuple(embedding.shape)}, (N, D) expected")
    steps, width = embedding.shape
    named = saved.get("n_latent", steps)
    if not isinstance(named, int) or named != steps:
        raise DataError(f"{path}: n_latent is {named!r:.200}, but step_embed has {steps} rows")
    expected = {
        "adapter.initial_projection.weight": (width, width),
        "adapter.initial_projection.bias": (width,),
        "adapter.delta_projection.weight": (width, width),
        "adapter.delta_projection.bias": (width,),
        "adapter.step_projection.weight": (width, width),
        "adapter.step_embedding": (steps, width),
        "adapter.step_scale_rho": (steps,),
        "adapter.gate.weight": (width, 2 * width),
        "adapter.gate.bias": (width,),
        "value_head.linear.weight": (1, width),
        "value_head.linear.bias": (1,),
    }
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise DataError(f"{path}: {name} has shape {tuple(found[name].shape)}, {shape} expected")
    return steps, width
