"""Candidate lists of an autoregressive recogniser from one read prompt: greedy, samples, beams, depths.

Everything continues from copies of one state, so an utterance is encoded and its prompt read once.  A
candidate is a text; what several token sequences write alike (spacing, casing, punctuation under the
normaliser) is one candidate, and its log-probability is that of all of them together.  The first is
always the greedy one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.decode.beam import beam_search
from espnet_latentasr.decode.sampling import SamplingRule, draw_seed, sample
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, deduplicate
from espnet_latentasr.text.normalize import Normalizer

MAX_POSITIONS = 1024  # logits of this many positions at once: 0.6 GB at 151,936 tokens
MAX_PERIOD = 16


@dataclass(frozen=True)
class NbestConfig:
    """How candidates are made. ``samples`` and ``beam``: numbers per utterance, 0 for none.

    ``size``: keep the greedy candidate and the most probable others, this many in all (null: all).
    ``loop_repeats``: a candidate in which one unit of at most 16 tokens stands this often in a row is
    flagged as looping.  ``max_rows``: most rows decoded at a time; bounds memory, changes nothing else.
    """

    samples: int = 32
    sampling: SamplingRule = field(default_factory=SamplingRule)
    beam: int = 0
    size: int | None = None
    seed: int = 0
    normalizer: str = "none"
    loop_repeats: int = 10
    max_rows: int = 64

    def __post_init__(self) -> None:
        for name, low in (("samples", 0), ("beam", 0), ("seed", 0), ("loop_repeats", 2), ("max_rows", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name}: {getattr(self, name)}, at least {low} expected")
        if self.size is not None and self.size < 1:
            raise ConfigError(f"size: {self.size}, at least 1 expected")
        if not self.samples and not self.beam:
            raise ConfigError("samples: 0 with beam: 0 leaves the greedy candidate alone; ask for some")
        if not self.samples and self.sampling != SamplingRule():
            raise ConfigError(f"{self.sampling}: without effect under samples: 0; leave it out")
        if self.beam > self.max_rows:
            raise ConfigError(f"beam: {self.beam} needs max_rows of at least that, got {self.max_rows}")


@dataclass(frozen=True)
class Given:
    """Token sequences of an utterance that were decoded elsewhere: by latent depth (None: unknown)."""

    tokens: tuple[int, ...]
    depth: int | None = None


def longest_repetition(tokens: Sequence[int], max_period: int = MAX_PERIOD) -> int:
    """Most times that a unit of at most ``max_period`` tokens stands back to back (1: never twice)."""
    ids = np.asarray(tokens)
    most = min(len(ids), 1)
    for period in range(1, min(max_period, len(ids) // 2) + 1):
        same = np.concatenate([[False], ids[period:] == ids[:-period], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1])
        longest = int((edges[1::2] - edges[::2]).max(initial=0))
        most = max(most, longest // period + 1)
    return most


@torch.no_grad()
def sequence_scores(
    backbone: Backbone,
    state: State,
    rows: Sequence[int],
    sequences: Sequence[Sequence[int]],
    max_rows: int = 64,
) -> list[float]:
    """Exact log-probability of writing each sequence from its row of ``state``, and then ending.

    It is that of the search: tokens that the recogniser never writes have none.
    Teacher-forced, float32 log-softmax summed in float64; ending is the sum over all end tokens.
    ``state`` stays valid.
    """
    device, ends = state.mask.device, list(backbone.end_ids)
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    scores = [0.0] * len(sequences)
    for chunk in _chunks(order, [len(s) + 1 for s in sequences], max_rows):
        forked = backbone.fork(state, torch.tensor([rows[i] for i in chunk], device=device))
        logits, ids, owners = teacher_force(backbone, forked, [[*sequences[i], ends[0]] for i in chunk])
        first = torch.ones_like(owners, dtype=torch.bool)
        first[1:] = owners[1:] != owners[:-1]
        logp = backbone.suppress(logits, first).log_softmax(-1)
        terms = logp.gather(1, ids[:, None])[:, 0].double()
        last = torch.tensor([len(sequences[i]) + 1 for i in chunk], device=device).cumsum(0) - 1
        terms[last] = logp[last][:, ends].double().logsumexp(-1)
        totals = torch.zeros(len(chunk), dtype=torch.float64, device=device)
        for index, total in zip(chunk, totals.index_add(0, owners, terms).tolist()):
            scores[index] = total
    return scores


def _chunks(order: Sequence[int], lengths: Sequence[int], max_rows: int) -> list[list[int]]:
    """Cut ``order`` into parts of at most ``max_rows`` and ``MAX_POSITIONS`` (one row always fits)."""
    parts: list[list[int]] = []
    held = 0
    for index in order:
        if not parts or len(parts[-1]) == max_rows or held + lengths[index] > MAX_POSITIONS:
            parts.append([])
            held = 0
        parts[-1].append(index)
        held += lengths[index]
    return parts


@dataclass
class _Sequence:
    """A distinct token sequence: who found it, and how."""

    tokens: tuple[int, ...]
    sources: set[str] = field(default_factory=set)
    samples: int = 0
    capped: bool = False
    depths: set[int] = field(default_factory=set)


def _collect(
    backbone: Backbone,
    state: State,
    utt_ids: Sequence[str],
    caps: Sequence[int],
    config: NbestConfig,
    given: Sequence[Sequence[Given]],
) -> list[list[_Sequence]]:
    """Distinct token sequences of every utterance, the greedy one first."""
    found: list[dict[tuple[int, ...], _Sequence]] = [{} for _ in utt_ids]

    def at(row: int, tokens: tuple[int, ...], source: str) -> _Sequence:
        entry = found[row].setdefault(tokens, _Sequence(tokens))
        entry.sources.add(source)
        return entry

    for row, hypothesis in enumerate(greedy(backbone, state, caps)):
        at(row, hypothesis.tokens, "greedy").capped |= hypothesis.capped
    seeds = [[draw_seed(config.seed, utt_id, i) for i in range(config.samples)] for utt_id in utt_ids]
    for row, group in enumerate(
        sample(backbone, state, caps, seeds, config.sampling, config.max_rows)
    ):
        for hypothesis in group:
            entry = at(row, hypothesis.tokens, "sample")
            entry.samples += 1
            entry.capped |= hypothesis.capped
    if config.beam:
        for row, group in enumerate(beam_search(backbone, state, caps, config.beam, config.max_rows)):
            for hypothesis in group:
                at(row, hypothesis.tokens, "beam").capped |= hypothesis.capped
    for row, group in enumerate(given):
        for candidate in group:
            entry = at(row, candidate.tokens, "depth")
            entry.depths |= set() if candidate.depth is None else {candidate.depth}
    return [list(group.values()) for group in found]


def nbest_lists(
    backbone: Backbone,
    state: State,
    utt_ids: Sequence[str],
    caps: Sequence[int],
    config: NbestConfig,
    meta: Meta,
    normalizer: Normalizer,
    refs: Mapping[str, str] | None = None,
    given: Sequence[Sequence[Given]] = (),
) -> list[NBest]:
    """Make the candidate list of every row of ``state``, which stays valid.

    A candidate's ``am_logp`` is the log-sum-exp of its token sequences' exact log-probabilities under
    ``state`` (also of ``given`` ones, which another state may have decoded), ``path_logp`` that of its
    best sequence.  ``count`` is the number of samples that gave it, 0 for a candidate found in another
    way.  Beside the fields of the format a candidate says ``from`` where it comes, and whether it was
    ``capped`` or is ``looping``.

    Args:
        caps: most new tokens per row.
        given: per row, further sequences to take in.
    """
    collected = _collect(backbone, state, utt_ids, caps, config, given)
    flat = [(row, entry) for row, group in enumerate(collected) for entry in group]
    scores = iter(
        sequence_scores(
            backbone, state, [r for r, _ in flat], [e.tokens for _, e in flat], config.max_rows
        )
    )
    lists = []
    for utt_id, group in zip(utt_ids, collected):
        surfaces = [backbone.text.detokenize(entry.tokens) for entry in group]
        candidates = tuple(
            Candidate(normalizer(surface), surface, entry.tokens, score, path_logp=score)
            for surface, entry, score in zip(surfaces, group, scores)
        )
        merged = deduplicate(NBest(utt_id, meta, candidates, None if refs is None else refs[utt_id]))
        hyps = [_described(c, [group[i] for i in c.merged], config) for c in merged.hyps]
        first, *others = hyps
        others.sort(key=lambda c: (-c.am_logp, c.text))
        kept = (first, *others)[: config.size]
        lists.append(replace(merged, hyps=kept))
    return lists


def _described(candidate: Candidate, members: Sequence[_Sequence], config: NbestConfig) -> Candidate:
    """Add what is known about a candidate's token sequences; ``merged`` has done its duty."""
    samples = sum(member.samples for member in members)
    depths = set().union(*(member.depths for member in members))
    return replace(
        candidate,
        count=samples,
        depth=min(depths, default=None),
        depths=(),
        merged=(),
        extra={
            "from": sorted(set().union(*(member.sources for member in members))),
            "samples": samples,
            "variants": len(members),
            "capped": all(member.capped for member in members),
            "looping": longest_repetition(candidate.tokens) >= config.loop_repeats,
        },
    )
