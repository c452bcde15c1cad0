"""Beam search over ``step``: a state in, several token sequences out; knows neither text nor audio.

The rule is that of the model library with no length penalty: of all continuations of an utterance's beams
the best are ranked; an end token among the first ``width`` finishes a hypothesis, the best ``width``
others go on; the search ends when no beam can overtake the ``width``-th finished hypothesis any more
(a score only falls as a hypothesis grows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.decode.search import Hypothesis, reachable
from espnet_latentasr.errors import ConfigError


@dataclass
class _Utterance:
    """One utterance's search: its rows are rows of the running state, best first."""

    cap: int
    rows: list[int]
    tokens: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    scores: list[float] = field(default_factory=lambda: [0.0])
    finished: list[Hypothesis] = field(default_factory=list)

    def extend(self, best: Sequence[tuple[float, int, int]], width: int, ends: set[int]) -> list[int]:
        """Take the ranked continuations (score, index of the beam, token); return the new tokens."""
        rows, tokens, scores, new = [], [], [], []
        for rank, (score, beam, token) in enumerate(best):
            if token in ends:
                if rank < width:
                    self.finished.append(Hypothesis(self.tokens[beam], score, False))
            elif len(rows) < width:
                rows.append(self.rows[beam])
                tokens.append((*self.tokens[beam], token))
                scores.append(score)
                new.append(token)
        self.finished = sorted(self.finished, key=lambda h: -h.log_probability)[:width]
        self.rows, self.tokens, self.scores = rows, tokens, scores
        return new

    def done(self, width: int) -> bool:
        """Whether no beam can change the list any more."""
        full = len(self.finished) == width
        return not self.rows or (full and self.scores[0] <= self.finished[-1].log_probability)

    def result(self, width: int) -> list[Hypothesis]:
        """Finished hypotheses, then those at the cap; best first, no token sequence twice."""
        running = [] if self.done(width) else zip(self.tokens, self.scores)
        capped = [Hypothesis(tokens, score, True) for tokens, score in running]
        unique: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in [*self.finished, *capped]:
            unique.setdefault(hypothesis.tokens, hypothesis)
        return list(unique.values())[:width]


@torch.no_grad()
def beam_search(
    backbone: Backbone,
    state: State,
    max_new_tokens: Sequence[int],
    width: int,
    max_rows: int = 64,
) -> list[list[Hypothesis]]:
    """Find up to ``width`` hypotheses per row of ``state``, which stays valid.

    Args:
        max_new_tokens: one cap per row; beams that reach it follow the finished hypotheses, ``capped``.
        max_rows: most rows decoded at a time (two copies exist while beams are reordered).

    Returns:
        Per row, best first.  Fewer than ``width`` where that many do not exist, or where two end tokens
        gave one sequence: its better score is kept.  ``width`` 1 is greedy search.

    Raises:
        ConfigError: ``width`` is not in 1..max_rows.
    """
    if not 1 <= width <= max_rows:
        raise ConfigError(f"beam: {width}, a width from 1 to max_rows ({max_rows}) expected")
    max_new_tokens = reachable(backbone, state, max_new_tokens)
    group = max_rows // width
    found = []
    for start in range(0, len(max_new_tokens), group):
        caps = list(max_new_tokens[start : start + group])
        rows = torch.arange(start, start + len(caps), device=state.mask.device)
        found += _search(backbone, backbone.fork(state, rows), caps, width)
    return found


def _search(backbone: Backbone, state: State, caps: list[int], width: int) -> list[list[Hypothesis]]:
    """Search all rows of ``state`` together; consumes it."""
    device, ends = state.mask.device, set(backbone.end_ids)
    utterances = [_Utterance(cap, [row]) for row, cap in enumerate(caps)]
    count, running = 0, [u for u in utterances if u.cap > 0]
    while running:
        count += 1
        logp = backbone.suppress(backbone.logits(state.hidden), count == 1).log_softmax(-1)
        # Of these, at least ``width`` are no end tokens.
        kept = min((1 + len(ends)) * width, logp.shape[1])
        values, tokens = (found.tolist() for found in logp.topk(kept, sorted=True))
        new: list[int] = []
        for utterance in running:
            continuations = [
                (score + value, beam, token)
                for beam, (row, score) in enumerate(zip(utterance.rows, utterance.scores))
                for value, token in zip(values[row], tokens[row])
            ]
            continuations.sort(key=lambda c: (-c[0], c[1], c[2]))
            grown = utterance.extend(continuations[: (1 + len(ends)) * width], width, ends)
            if not utterance.done(width) and count < utterance.cap:
                new += grown
        running = [u for u in running if not u.done(width) and count < u.cap]
        if running:
            parents = [row for utterance in running for row in utterance.rows]
            if parents != list(range(state.batch_size)):
                state = backbone.fork(state, torch.tensor(parents, device=device))
            last = iter(range(len(parents)))
            for utterance in running:
                utterance.rows = [next(last) for _ in utterance.rows]
            embeds = backbone.embed(torch.tensor(new, device=device))[:, None]
            everyone = torch.ones(len(new), 1, dtype=torch.bool, device=device)
            state = backbone.step(state, embeds, everyone)
    return [utterance.result(width) for utterance in utterances]
