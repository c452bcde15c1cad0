"""Configurations of candidate lists and of choosing from them, read from one YAML; computes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from espnet_latentasr.config import build, load_yaml
from espnet_latentasr.errors import ConfigError

# The terms that read text alone: they cannot judge an empty one (its log-probability is 0, the best).
LM_TERMS = ("pll", "ll", "ilm", "ngram")


def _at_least(where: str, value: float, low: float) -> None:
    if not value >= low:
        raise ConfigError(f"{where}: {value!r}, at least {low:g} expected")


@dataclass(frozen=True)
class ScoreWeights:
    """Coefficients of the log-linear score s = am log P(y|x) + pll PLL(y) + ll log P(y) + ...

    ``path``: score of a single alignment.  ``ilm``: internal language model, to be subtracted, so its
    coefficient is negative.  ``value``: value head, or another learned reranker (``names.value``).
    """

    am: float = 0.0
    path: float = 0.0
    pll: float = 0.0
    ll: float = 0.0
    ilm: float = 0.0
    ngram: float = 0.0
    value: float = 0.0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.used().values())):
            raise ConfigError(f"score: coefficients {self.used()}, finite ones expected")

    def used(self) -> dict[str, float]:
        """Return the terms whose coefficient is not 0."""
        return {name: c for name, c in vars(self).items() if c != 0}

    @property
    def reads_text(self) -> bool:
        """Whether a language model has a say."""
        return any(name in LM_TERMS for name in self.used())


@dataclass(frozen=True)
class ScoreNames:
    """Under which key of a candidate's ``scores`` each term is stored."""

    pll: str = "pll"
    ll: str = "ll"
    ilm: str = "ilm"
    ngram: str = "ngram"
    value: str = "value"


@dataclass(frozen=True)
class PosteriorConfig:
    """Q over the candidates: softmax(s / tau), relative counts of paths or samples, or uniform.

    ``tau_unit``: tau in nats, in standard deviations of s within the list, or in the median of these
    over the set; the last two carry over to other language models and languages.
    """

    kind: Literal["loglinear", "counts", "uniform"] = "loglinear"
    tau: float = 10.0
    tau_unit: Literal["nats", "list_sd", "median_sd"] = "nats"

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise ConfigError(f"posterior.tau: {self.tau!r}, a number above 0 or .inf expected")


@dataclass(frozen=True)
class RescoreConfig:
    """How one candidate is chosen; the defaults are MBR under a masked language model's posterior.

    ``kind``: ``greedy`` takes candidate 0; ``argmax`` the highest score (over its ``length``);
    ``mbr`` the lowest expected ``loss`` under the posterior; ``two_stage`` the highest ``second``
    score among the ``keep`` lowest expected losses.  Interpolation is ``argmax`` of two coefficients,
    self-consistency is ``mbr`` with a uniform posterior, an ensemble ``mbr`` with two language models.

    ``denominator``: of a distance between y_i and y_j: the longer one, y_j, or none.
    ``candidates``: use the first so many of each list (null: all).  ``dedup``: merge equal texts first.
    ``normalizer``: makes the text to compare from the surface; ``list``: the text as it is.
    ``max_unk_rate``: largest share of unknown words in the lists.
    ``term_unit``: a term of ``score`` and ``second`` counts as it is (``nats``), or as its deviation from
    the list's mean in standard deviations of the list (``list_sd``), for terms of different scales.
    """

    kind: Literal["greedy", "argmax", "mbr", "two_stage"] = "mbr"
    score: ScoreWeights = field(default_factory=lambda: ScoreWeights(pll=1.0))
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)
    loss: Literal["cer", "cer_nospace", "wer", "token", "neg_bleu"] = "cer"
    denominator: Literal["max", "ref", "none"] = "max"
    length: Literal["none", "tokens", "characters"] = "none"
    keep: int = 5
    second: ScoreWeights = field(default_factory=lambda: ScoreWeights(ll=1.0))
    names: ScoreNames = field(default_factory=ScoreNames)
    candidates: int | None = None
    dedup: bool = True
    normalizer: str = "list"
    max_unk_rate: float = 0.01
    term_unit: Literal["nats", "list_sd"] = "nats"

    def __post_init__(self) -> None:
        _at_least("keep", self.keep, 1)
        _at_least("max_unk_rate", self.max_unk_rate, 0)
        if self.candidates is not None:
            _at_least("candidates", self.candidates, 1)
        if self.loss == "neg_bleu" and self.denominator != "max":
            raise ConfigError(
                f"denominator: {self.denominator} contradicts loss: neg_bleu, which has none"
            )
        scored = self.kind == "argmax" or (self.expects and self.posterior.kind == "loglinear")
        if scored and not self.score.used():
            raise ConfigError("score: every coefficient is 0; give one, or posterior.kind: uniform")
        if self.kind == "two_stage" and not self.second.used():
            raise ConfigError("second: every coefficient is 0, so nothing decides in the second stage")

    @property
    def expects(self) -> bool:
        """Whether expected losses are computed."""
        return self.kind in ("mbr", "two_stage")

    @property
    def reads_text(self) -> bool:
        """Whether a language model has a say in the choice: empty texts then take no part."""
        first = self.kind == "argmax" or (self.expects and self.posterior.kind == "loglinear")
        return first and self.score.reads_text or self.kind == "two_stage" and self.second.reads_text


# Keys that only some kinds read.
_USES = {
    "greedy": set(),
    "argmax": {"score", "length", "term_unit"},
    "mbr": {"score", "posterior", "loss", "denominator", "term_unit"},
    "two_stage": {"score", "posterior", "loss", "denominator", "keep", "second", "term_unit"},
}


def rescore_config(mapping: dict[str, Any], where: str = "rescoring") -> RescoreConfig:
    """Build a configuration and refuse keys that its choices have no use for.

    Raises:
        ConfigError: an unknown key, a wrong type, or a key that would be without effect.
    """
    config = build(RescoreConfig, mapping, where)
    unused = set().union(*_USES.values()) - _USES[config.kind]
    if config.expects and config.posterior.kind != "loglinear":
        unused |= {"score"} if config.kind == "two_stage" else {"score", "term_unit"}
        tau = set((mapping.get("posterior") or {}).keys()) & {"tau", "tau_unit"}
        if tau:
            raise ConfigError(
                f"{where}.posterior.{min(tau)}: without effect on posterior.kind: {config.posterior.kind}"
            )
    if odd := sorted(unused & mapping.keys()):
        kind = f"kind: {config.kind}"
        kind += f" with posterior.kind: {config.posterior.kind}" if config.expects else ""
        raise ConfigError(f"{where}.{odd[0]}: without effect under {kind}; remove one of the two")
    return config


def needed_terms(config: RescoreConfig) -> set[str]:
    """The terms of the scores that a configuration looks at."""
    terms: set[str] = set()
    if config.kind == "argmax" or (config.expects and config.posterior.kind == "loglinear"):
        terms |= set(config.score.used())
    if config.kind == "two_stage":
        terms |= set(config.second.used())
    return terms


def load_rescore_config(path: str | Path) -> RescoreConfig:
    """Read a YAML with its ``base:``."""
    return rescore_config(load_yaml(path), str(path))


@dataclass(frozen=True)
class CtcListConfig:
    """How candidates come out of CTC log-posteriors.

    ``gen``: ``sys`` draws ``num_paths`` alignments systematically (no randomness), ``iid`` with
    ``seed``; ``prefix`` is prefix beam search of width ``num_paths``; ``kbest`` takes the best
    alignments, at most ``num_paths``, until the list is full.  ``size``: candidates asked for.
    ``nbest_scale`` flattens (below 1) what is drawn from, never a score.  ``output_beam`` (nats, null:
    none) prunes what is drawn from, and the labels of the prefix search; with a scale below 1 it is
    part of the definition.  ``order``: the list is sorted by the path's score or the exact probability.
    """

    gen: Literal["sys", "iid", "prefix", "kbest"] = "sys"
    size: int = 128
    num_paths: int = 512
    nbest_scale: float = 1.0
    output_beam: float | None = 8.0
    order: Literal["path", "am"] = "path"
    seed: int | None = None

    def __post_init__(self) -> None:
        _at_least("size", self.size, 1)
        _at_least("num_paths", self.num_paths, 1)
        if not 0 < self.nbest_scale < math.inf:
            raise ConfigError(f"nbest_scale: {self.nbest_scale!r}, a number above 0 expected")
        if self.output_beam is not None and not 0 < self.output_beam < math.inf:
            raise ConfigError(f"output_beam: {self.output_beam!r}, a number above 0 expected, or null")
        if (self.gen == "iid") != (self.seed is not None):
            raise ConfigError(f"seed: {self.seed} with gen: {self.gen}; gen: iid and no other needs one")
        if self.nbest_scale != 1 and self.gen in ("prefix", "kbest"):
            raise ConfigError(f"nbest_scale: {self.nbest_scale} is without effect on gen: {self.gen}")
        if self.nbest_scale < 1 and self.output_beam is None:
            raise ConfigError(
                f"nbest_scale: {self.nbest_scale} without output_beam draws from the flattened tail of "
                "the whole vocabulary: hypotheses become several times too long; set output_beam"
            )
        if self.gen == "kbest" and self.output_beam is not None:
            raise ConfigError("output_beam: without effect on gen: kbest, give null")
