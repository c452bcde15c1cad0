"""Configurations of learned rerankers, read from one YAML; trains nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from espnet_latentasr.config import build, load_yaml
from espnet_latentasr.errors import ConfigError


def _number(where: str, value: float, low: float, high: float = math.inf, *, above: bool = False) -> None:
    if not (low < value if above else low <= value) or not value <= high:
        bound = f"above {low:g}" if above else f"at least {low:g}"
        raise ConfigError(f"{where}: {value!r}, {bound} and at most {high:g} expected")


@dataclass(frozen=True)
class FeatureConfig:
    """14 features of a candidate in its list -> predicted error rate.

    ``model``: ``mlp`` with hidden ``layers`` and early stopping, ``ridge`` regression of penalty
    ``alpha``, or ``pairwise``: logistic regression of which of two candidates has fewer errors, from at
    most ``pairs`` pairs of each utterance.
    """

    model: Literal["mlp", "ridge", "pairwise"] = "mlp"
    layers: str = "32 16"
    alpha: float = 1.0
    pairs: int = 20
    max_iterations: int = 200

    def __post_init__(self) -> None:
        if not self.layers.split() or not all(n.isdigit() and int(n) for n in self.layers.split()):
            raise ConfigError(f"features.layers: {self.layers!r}, whole numbers such as '32 16' expected")
        _number("features.alpha", self.alpha, 0)
        _number("features.pairs", self.pairs, 1)
        _number("features.max_iterations", self.max_iterations, 1)


@dataclass(frozen=True)
class ValueHeadConfig:
    """Acoustic value head: encoder states at a hypothesis' frames -> score, by a pairwise hinge.

    ``width``, ``width_2``: of the two hidden layers; ``batch``: utterances a step.
    """

    width: int = 256
    width_2: int = 128
    dropout: float = 0.2
    margin: float = 0.1
    lr: float = 1.0e-3
    epochs: int = 50
    batch: int = 16

    def __post_init__(self) -> None:
        for name in ("width", "width_2", "epochs", "batch"):
            _number(f"value.{name}", getattr(self, name), 1)
        _number("value.dropout", self.dropout, 0, 0.99)
        _number("value.margin", self.margin, 0)
        _number("value.lr", self.lr, 0, above=True)


@dataclass(frozen=True)
class MaskedConfig:
    """A masked language model, fine-tuned so that its list scores expect few errors (MWER).

    The score is a linear map of the first token's state; list probabilities are
    softmax((score + acoustic log P(y|x)) / temperature).  ``batch``: utterances a step; ``warmup``: in
    steps.
    """

    lr: float = 2.0e-5
    weight_decay: float = 0.01
    warmup: int = 500
    epochs: int = 5
    batch: int = 2
    clip: float = 1.0
    max_length: int = 128
    temperature: float = 1.0
    acoustic: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            _number(f"masked.{name}", getattr(self, name), 1)
        for name in ("weight_decay", "warmup", "acoustic"):
            _number(f"masked.{name}", getattr(self, name), 0)
        for name in ("lr", "clip", "temperature"):
            _number(f"masked.{name}", getattr(self, name), 0, above=True)
        _number("masked.max_length", self.max_length, 3)


@dataclass(frozen=True)
class RerankerConfig:
    """A learned reranker: its ``kind``, and the section of that name.

    ``candidates``: of each training list, the greedy one and others drawn by ``seed``, this many in all
    (``features`` learns from all).  ``held_out``: share of the utterances (by a hash of their ids) that
    is not learned from: it chooses the epoch, and says what the reranker is worth.
    ``unit``: what an error is; texts and references get the lists' normaliser.
    """

    kind: Literal["features", "value", "masked"]
    candidates: int = 16
    held_out: float = 0.1
    unit: Literal["wer", "cer", "cer_nospace", "mer"] = "wer"
    seed: int = 42
    features: FeatureConfig = field(default_factory=FeatureConfig)
    value: ValueHeadConfig = field(default_factory=ValueHeadConfig)
    masked: MaskedConfig = field(default_factory=MaskedConfig)

    def __post_init__(self) -> None:
        _number("candidates", self.candidates, 2)
        _number("held_out", self.held_out, 0, 0.9, above=True)
        _number("seed", self.seed, 0, 2**32 - 1)


def reranker_config(mapping: dict[str, Any], where: str = "reranker") -> RerankerConfig:
    """Build a configuration; a section of another kind is an error.

    Raises:
        ConfigError: no kind, an unknown key, a wrong type, or a section without effect.
    """
    if "kind" not in mapping:
        raise ConfigError(f"{where}.kind: missing; features, value or masked expected")
    config = build(RerankerConfig, mapping, where)
    if odd := sorted(({"features", "value", "masked"} - {config.kind}) & mapping.keys()):
        raise ConfigError(f"{where}.{odd[0]}: without effect under kind: {config.kind}; remove it")
    if config.kind == "features" and "candidates" in mapping:
        raise ConfigError(f"{where}.candidates: without effect under kind: features, which reads all")
    return config


def load_reranker_config(path: str | Path) -> RerankerConfig:
    """Read a YAML with its ``base:``."""
    return reranker_config(load_yaml(path), str(path))
