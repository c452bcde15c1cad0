"""Settings of sequence-level training of a CTC model; numbers and names only, no torch, no ESPnet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from espnet_latentasr.config import build
from espnet_latentasr.errors import ConfigError

# What a CTC model is made of in ESPnet's config.yaml: taken over from the model training starts from.
MODEL_KEYS = (
    "token_list", "token_type", "bpemodel", "non_linguistic_symbols", "cleaner", "g2p", "input_size",
    "use_preprocessor", "ctc_conf", "joint_net_conf",
    *(name + end for end in ("", "_conf") for name in (
        "preprocessor", "model", "frontend", "specaug", "normalize", "preencoder", "encoder",
        "postencoder", "decoder",
    )),
)  # fmt: skip


def _within(name: str, value: float, low: float, high: float, above: bool = False) -> None:
    if not (low < value if above else low <= value) or not value <= high:
        raise ConfigError(f"sequence_conf.{name}: {value!r}, a number from {low} to {high} expected")


@dataclass(frozen=True)
class ListConfig:
    """Candidates of a training utterance, drawn again at every visit.

    ``num_paths`` alignments are drawn independently from the current posterior, collapsed and merged by
    text; greedy comes first, then the others in the order they were drawn, at most ``size`` in all.
    ``nbest_scale`` and ``output_beam``: as in `rescoring.config.CtcListConfig`; they change what is
    drawn, never a probability.
    """

    size: int = 4
    num_paths: int = 16
    nbest_scale: float = 1.0
    output_beam: float | None = None

    def __post_init__(self) -> None:
        _within("list.size", self.size, 2, 1 << 16)
        _within("list.num_paths", self.num_paths, 1, 1 << 20)
        _within("list.nbest_scale", self.nbest_scale, 0, math.inf, above=True)
        if self.output_beam is not None:
            _within("list.output_beam", self.output_beam, 0, math.inf, above=True)
        if self.nbest_scale < 1 and self.output_beam is None:
            raise ConfigError(
                f"sequence_conf.list.nbest_scale: {self.nbest_scale} without list.output_beam draws from "
                "the flattened tail of the whole vocabulary; set output_beam"
            )


@dataclass(frozen=True)
class MwerConfig:
    """Minimum word error rate training: a policy term and ``anchor`` times CTC(reference) in nats.

    ``kind``: ``nbest`` is the bounded, list-normalised loss; ``eq4`` the sum of advantage times log P as
    printed in the oracle-gap paper, which is unbounded below; ``grpo`` PPO's clipped surrogate against
    the policy the candidates were drawn from, renewed every ``reference_sync`` optimiser steps.
    ``cost``: word errors per reference word, or their number.  ``temperature`` belongs to ``nbest``,
    the clip bounds (``clip_low``, ``clip_high``) and ``reference_sync`` to ``grpo``.
    """

    kind: Literal["nbest", "eq4", "grpo"] = "nbest"
    cost: Literal["rate", "errors"] = "rate"
    anchor: float = 0.01
    temperature: float = 1.0
    clip_low: float = 0.1
    clip_high: float = 0.2
    reference_sync: int = 4

    def __post_init__(self) -> None:
        _within("mwer.anchor", self.anchor, 0, math.inf)
        _within("mwer.temperature", self.temperature, 0, math.inf, above=True)
        _within("mwer.clip_low", self.clip_low, 0, 1, above=True)
        _within("mwer.clip_high", self.clip_high, 0, math.inf, above=True)
        _within("mwer.reference_sync", self.reference_sync, 1, 1 << 30)
        if self.kind != "nbest" and self.temperature != 1:
            raise ConfigError(
                f"sequence_conf.mwer.temperature: {self.temperature} is without effect on kind: "
                f"{self.kind}; use 1"
            )


@dataclass(frozen=True)
class RaftConfig:
    """CTC towards the best candidate; ``reference_share`` is lambda, the weight of the reference.

    At 1 it is ordinary CTC training, each loss divided by its length: the control of what the
    candidates add.
    """

    reference_share: float = 0.5

    def __post_init__(self) -> None:
        _within("raft.reference_share", self.reference_share, 0, 1)


@dataclass(frozen=True)
class GuardConfig:
    """What must hold before the first step, on the first ``utterances`` of an epoch.

    ``max_unk_rate``: <unk> among the reference's tokens.  ``max_nll``: mean -log P(reference) per token
    in nats; a model that was trained on these targets is far below, one that was not (wrong case,
    another token list) far above.  ``max_impossible``: references with more tokens than frames can hold.
    ``min_usable``: share of utterances whose candidates differ in cost; with none there is nothing to
    learn from, whatever this says.
    """

    utterances: int = 512
    max_unk_rate: float = 0.01
    max_nll: float = 1.0
    max_impossible: float = 0.01
    min_usable: float = 0.0

    def __post_init__(self) -> None:
        _within("guards.utterances", self.utterances, 1, 1 << 30)
        _within("guards.max_nll", self.max_nll, 0, math.inf, above=True)
        for name in ("max_unk_rate", "max_impossible", "min_usable"):
            _within(f"guards.{name}", getattr(self, name), 0, 1)


@dataclass(frozen=True)
class SequenceConfig:
    """Everything that decides the loss.

    ``dropout``: whether the model's dropout and masking of features are on in training; off (the paper's
    way), what is drawn from and what is trained is the very model that decodes.  ``normalizer``: of
    references and candidates when words are counted.
    """

    objective: Literal["mwer", "raft"] = "mwer"
    list: ListConfig = field(default_factory=ListConfig)
    mwer: MwerConfig = field(default_factory=MwerConfig)
    raft: RaftConfig = field(default_factory=RaftConfig)
    guards: GuardConfig = field(default_factory=GuardConfig)
    dropout: bool = False
    normalizer: str = "none"

    def __post_init__(self) -> None:
        if self.objective == "mwer" and self.mwer.kind == "grpo" and self.dropout:
            raise ConfigError(
                "sequence_conf.dropout: true contradicts mwer.kind: grpo (the ratio of two policies "
                "would be that of two draws of dropout); use dropout: false"
            )


def sequence_config(mapping: Mapping[str, Any]) -> SequenceConfig:
    """Build the configuration from ``sequence_conf``.

    Raises:
        ConfigError: an unknown key or wrong type, or keys of the objective that is not trained.
    """
    config = build(SequenceConfig, dict(mapping), "sequence_conf")
    other = "raft" if config.objective == "mwer" else "mwer"
    if mapping.get(other) and getattr(config, other) != getattr(SequenceConfig(), other):
        raise ConfigError(
            f"sequence_conf.objective: {config.objective} contradicts sequence_conf.{other}."
            f"{next(iter(mapping[other]))} (a key of objective: {other}); remove one of the two"
        )
    return config


def with_model_of(saved: Mapping[str, Any], own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return training options ``own`` with the model of a saved ESPnet configuration.

    Raises:
        ConfigError: ``own`` describes another model, or ``saved`` is no configuration of a model.
    """
    if not saved.get("token_list"):
        raise ConfigError(
            f"{where}: no token_list; the config.yaml of a trained ESPnet ASR model expected"
        )
    taken = {key: saved[key] for key in MODEL_KEYS if key in saved}
    for key in own:
        if key in MODEL_KEYS and own[key] != taken.get(key):
            raise ConfigError(
                f"{key}: {own[key]!r} contradicts {where}, whose model has {taken.get(key)!r}; sequence "
                "training keeps the model, remove the key"
            )
    return taken | dict(own)
