"""Language models from local folders or, with a commit hash, from the hub; scores nothing.

Loads weights only, never code, and refuses a checkpoint that lacks some: the library would draw them.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.lm import CausalLM, LLOptions, MaskedLM, PLLOptions

HASHED = {".safetensors", ".bin", ".json", ".txt", ".model", ".jinja"}


def _fingerprint(name: str, revision: str | None) -> tuple[str, dict[str, str | bool]]:
    """Identity of a local folder or hub id, and what the library must be told to find it.

    Raises:
        ConfigError: a folder without config.json, or a hub id without a commit.
    """
    folder = Path(name)
    if not folder.is_dir():
        if revision is None or not re.fullmatch("[0-9a-f]{40}", revision):
            raise ConfigError(
                f"language model '{name}' is no local folder, and a hub id needs its revision, a commit "
                f"hash (got {revision!r}), so that results name their weights"
            )
        return f"{name}@{revision}", {"revision": revision, "trust_remote_code": False}
    if not (folder / "config.json").is_file():
        raise ConfigError(f"language model folder '{name}' has no config.json")
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in HASHED and path.is_file():
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()[:16]}", {"trust_remote_code": False}


def _load(auto: Any, name: str, revision: str | None, dtype: str, device: str) -> tuple[Any, Any, str]:
    if dtype not in {"float32", "bfloat16"}:
        raise ConfigError(f"dtype: '{dtype}' is not float32 or bfloat16")
    fingerprint, where = _fingerprint(name, revision)
    try:
        model, loaded = auto.from_pretrained(
            name, dtype=getattr(torch, dtype), output_loading_info=True, **where
        )
        tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, **where)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"language model '{name}' cannot be loaded: {error}") from error
    if missing := sorted(loaded["missing_keys"]) + sorted(map(str, loaded["mismatched_keys"])):
        raise ConfigError(
            f"language model '{name}' lacks weights that would be random instead: {missing[:3]} "
            f"({len(missing)}); it was saved without its output layer, or is another kind of model"
        )
    return model.to(device), tokenizer, fingerprint


def load_masked_lm(
    name: str,
    revision: str | None = None,
    options: PLLOptions | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    token_budget: int = 8192,
) -> MaskedLM:
    """Load a masked language model from a local folder or, with a commit hash, from the hub.

    Raises:
        ConfigError: it cannot be found, is no masked language model, or lacks weights.
    """
    model, tokenizer, fingerprint = _load(AutoModelForMaskedLM, name, revision, dtype, device)
    return MaskedLM(model, tokenizer, fingerprint, options, token_budget)


def load_causal_lm(
    name: str,
    revision: str | None = None,
    options: LLOptions | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    token_budget: int = 2048,
) -> CausalLM:
    """Load a left-to-right language model from a local folder or, with a commit hash, from the hub.

    Raises:
        ConfigError: it cannot be found, is no causal language model, or lacks weights.
    """
    model, tokenizer, fingerprint = _load(AutoModelForCausalLM, name, revision, dtype, device)
    return CausalLM(model, tokenizer, fingerprint, options, token_budget)
