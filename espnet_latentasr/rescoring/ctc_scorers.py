"""Other posteriors of one utterance to draw candidates from: masked input, dropout; knows no model.

Both take a function from features (F, D) to log-posteriors (T, V), run it again, and return
log-posteriors for the generators of `ctc_paths`.  What is random is keyed by seed and utterance, so that
the result depends on neither the order nor the number of utterances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from espnet_latentasr.rescoring.ctc_paths import keyed_rng

LogPosteriors = Callable[[torch.Tensor], torch.Tensor]
FLOOR = math.log(1e-30)  # probabilities below count as this, so that differences of logs stay finite


@dataclass(frozen=True)
class MaskConfig:
    """Spans of the features that are replaced: widths in bins and as a share of the frames."""

    bands: int = 3
    band_width: int = 12
    spans: int = 3
    span_share: float = 0.15
    fill: float = 0.0


def masked_features(
    features: torch.Tensor, utt_id: str, seed: int, config: MaskConfig | None = None
) -> torch.Tensor:
    """Return a copy of features (F, D) with random bands of bins and spans of frames filled.

    Bands and spans lie anywhere within the features and may overlap.
    """
    config = config or MaskConfig()
    rng = keyed_rng(seed, utt_id)
    masked = features.clone()
    frames, bins = features.shape
    width, length = min(config.band_width, bins), round(config.span_share * frames)
    for _ in range(config.bands):
        start = int(rng.integers(bins - width + 1))
        masked[:, start : start + width] = config.fill
    for _ in range(config.spans):
        start = int(rng.integers(frames - length + 1))
        masked[start : start + length] = config.fill
    return masked


def contrast(clean: torch.Tensor, masked: torch.Tensor, amount: float) -> torch.Tensor:
    """Return log-softmax((1 + a) lp_clean - a lp_masked), (T, V) float64; a = 0 is ``clean`` itself."""
    clean, masked = clean.double(), masked.double().clamp(min=FLOOR)
    return ((1 + amount) * clean - amount * masked).log_softmax(-1)


def contrastive(
    log_posteriors: LogPosteriors,
    features: torch.Tensor,
    utt_id: str,
    *,
    amount: float,
    seed: int,
    mask: MaskConfig | None = None,
) -> torch.Tensor:
    """Return log-posteriors (T, V) of the clean features against those of masked ones."""
    masked = masked_features(features, utt_id, seed, mask)
    return contrast(log_posteriors(features), log_posteriors(masked), amount)


@contextmanager
def only_dropout(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into eval mode except its `nn.Dropout` layers; modes are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    for module, _ in modes:
        if type(module) is nn.Dropout:
            module.train()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def mc_dropout(
    log_posteriors: LogPosteriors,
    features: torch.Tensor,
    utt_id: str,
    model: nn.Module,
    *,
    seed: int,
    passes: int = 4,
) -> torch.Tensor:
    """Return the logarithm of the mean probability over passes with dropout, (T, V) float64.

    The random state of the CPU and of the features' device is as before afterwards.
    """
    devices = [features.device] if features.is_cuda else []
    rng = keyed_rng(seed, utt_id)
    with only_dropout(model), torch.random.fork_rng(devices):
        total: torch.Tensor | float = 0.0
        for _ in range(passes):
            torch.manual_seed(int(rng.integers(2**63)))
            total = total + log_posteriors(features).double().exp()
    return (total / passes).clamp(min=math.exp(FLOOR)).log().log_softmax(-1)
