"""Candidate lists for sequence training: drawn from the stages of a latent loop, errors counted.

The greedy texts of the depths and samples of the deepest one; knows no gradient: all is read from
copies, and the stages stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from espnet_latentasr.adaptation.latent_mwer import CandidateLists
from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.config import MwerConfig
from espnet_latentasr.decode.sampling import SamplingRule, sample
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.text.edit_distance import align
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.units import tokenize

# New tokens that a candidate may have: a loop must end, and what is longer than this is wrong anyway.
CAP_FACTOR, CAP_EXTRA = 2, 16


class TrainingLists:
    """Makes the lists of ``config`` (see ``adaptation.latent_mwer.ListWriter``)."""

    def __init__(self, backbone: Backbone, config: MwerConfig) -> None:
        self.backbone, self.config = backbone, config
        self.rule = SamplingRule(temperature=config.sampling_temperature)
        self.normalizer = get_normalizer(config.normalizer)

    @torch.no_grad()
    def __call__(
        self,
        stages: Sequence[State],
        targets: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
    ) -> CandidateLists:
        """Lists of a batch; a candidate that reached its cap counts as it stands."""
        size, last = len(targets), stages[-1]
        caps = [CAP_FACTOR * len(ids) + CAP_EXTRA for ids in targets]
        read = stages if self.config.depths else [last]
        # On copies: without gradient the cache's own columns would lose theirs.
        found = greedy(self.backbone, self.backbone.branch(read), caps * len(read))
        drawn = sample(self.backbone, last, caps, seeds, self.rule) if any(seeds) else [[]] * size
        tokens, errors, lengths = [], [], []
        for row, ids in enumerate(targets):
            # The deepest first: it is the utterance's own greedy text.
            group = [found[depth * size + row] for depth in reversed(range(len(read)))] + drawn[row]
            tokens.append(list(dict.fromkeys(hypothesis.tokens for hypothesis in group)))
            reference = self._units(ids)
            errors.append([align(reference, self._units(t)).counts.errors for t in tokens[-1]])
            lengths.append(len(reference))
        return CandidateLists(tokens, errors, lengths)

    def _units(self, ids: Sequence[int]) -> list[str]:
        ends = set(self.backbone.end_ids)
        text = self.backbone.text.detokenize([token for token in ids if token not in ends])
        return tokenize(self.normalizer(text), self.config.unit)
