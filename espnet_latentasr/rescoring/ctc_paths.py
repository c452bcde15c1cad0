"""Candidates out of CTC log-posteriors: sampled paths, best paths, prefix search; numpy, float64.

In the standard topology every label sequence of T frames is one path and P(path) is the product over
frames, so sampling frame by frame and collapsing draws from P_CTC(y|x) exactly.  Nothing here knows
text, vocabulary or model.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from espnet_latentasr.errors import DataError

NORMALISED = 1e-3  # largest deviation of a frame's probabilities from 1: float32 rounding, no more
BELOW_ONE = 1.0 - 2.0**-53


def log_posteriors(matrix: Any, labels: int | None = None, where: str = "posteriors") -> np.ndarray:
    """Return natural-log posteriors (T, V) as a contiguous float64 array whose rows sum to one.

    Rows that sum to one within float32 rounding are normalised exactly.

    Args:
        matrix: array or tensor (T, V).
        labels: V expected.

    Raises:
        DataError: another shape, no frame, NaN, or rows that are no log-probabilities.
    """
    if hasattr(matrix, "detach"):
        matrix = matrix.detach().cpu().double()
    array = np.ascontiguousarray(matrix, dtype=np.float64)
    expected = f"(frames, {'labels' if labels is None else labels})"
    if array.ndim != 2 or 0 in array.shape or array.shape[1] < 2 or labels not in (None, array.shape[1]):
        turned = array.ndim == 2 and array.shape[0] == labels
        raise DataError(f"{where}: shape {array.shape}, {expected} expected{'; transposed?' * turned}")
    if np.isnan(array).any():
        raise DataError(f"{where}: NaN in frame {int(np.isnan(array).any(1).argmax())}; decode again")
    with np.errstate(over="ignore"):
        total = np.exp(array).sum(1)
    worst = int(np.abs(total - 1).argmax())
    if not abs(total[worst] - 1) <= NORMALISED:
        raise DataError(
            f"{where}: probabilities of frame {worst} sum to {total[worst]:.6g}, 1 expected; natural-log "
            "posteriors (after log-softmax, not logits, probabilities or log10) are needed"
        )
    return array - np.log(total)[:, None]


def collapse(paths: np.ndarray, blank: int = 0) -> list[tuple[int, ...]]:
    """Merge repeated labels, then drop blanks: paths (N, T) -> N token sequences."""
    paths = np.asarray(paths)
    keep = paths != blank
    keep[:, 1:] &= paths[:, 1:] != paths[:, :-1]
    return [tuple(path[kept].tolist()) for path, kept in zip(paths, keep)]


def path_scores(lp: np.ndarray, paths: np.ndarray) -> np.ndarray:
    """Sum the log-posteriors along paths (N, T) -> (N,)."""
    return lp[np.arange(len(lp)), paths].sum(1)


def _transitions(
    lp: np.ndarray, scale: float, beam: float | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield (labels (K,), distribution function (K of the frame before, or 1; K)) per frame.

    Pruning keeps the arc i -> j when the best path through it is at most ``beam`` below the best path:
    deficit_{t-1}(i) + deficit_t(j) <= beam.  What is left is a Markov chain, normalised backwards.
    """
    deficit = lp.max(1, keepdims=True) - lp
    limit = np.finfo(float).max if beam is None else beam
    labels = [np.flatnonzero(row <= limit) for row in deficit]
    frames: list[tuple[np.ndarray, np.ndarray | None]] = []
    after = np.zeros(len(labels[-1]))
    for t in range(len(lp) - 1, -1, -1):
        here = deficit[t, labels[t]]
        before = deficit[t - 1, labels[t - 1]] if t else np.zeros(1)
        if len(here) == 1:
            frames.append((labels[t], None))
            after = np.zeros(len(before))
            continue
        logits = -scale * here + after
        matrix = np.broadcast_to(logits, (1, len(here)))
        if beam is not None and before.max() + here.max() > beam:
            matrix = np.where(before[:, None] + here <= beam, logits, -np.inf)
        top = matrix.max(1, keepdims=True)
        mass = np.exp(matrix - top).cumsum(1)
        frames.append((labels[t], mass / mass[:, -1:]))
        after = np.broadcast_to(top[:, 0] + np.log(mass[:, -1]), (len(before),))
    return reversed(frames)


def sample_paths(
    lp: np.ndarray,
    num_paths: int,
    *,
    scale: float = 1.0,
    beam: float | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """Draw label sequences from the (pruned, scaled) lattice of log-posteriors (T, V) -> (N, T).

    Without ``rng`` sampling is systematic, as in k2's ``random_paths``: path i follows the point
    (i + 0.5) / N through the distribution functions as an arithmetic decoder does.  A point carries 53
    bits; what a path needs beyond these (seldom: some 30 bits of entropy are usual) is rounding noise.

    Args:
        scale: exponent of the path probabilities; below 1 flattens.  Scores are never scaled.
        beam: pruning in nats, None for none.
    """
    points = (np.arange(num_paths) + 0.5) / num_paths
    state = np.zeros(num_paths, dtype=np.intp)
    paths = np.empty((num_paths, len(lp)), dtype=np.int64)
    for t, (labels, table) in enumerate(_transitions(lp, scale, beam)):
        if table is None:
            state = np.zeros(num_paths, dtype=np.intp)
            paths[:, t] = labels[0]
            continue
        if rng is not None:
            points = rng.random(num_paths)
        if len(table) == 1:
            chosen = np.searchsorted(table[0], points, side="right")
            rows = np.zeros(num_paths, dtype=np.intp)
        else:
            rows = state
            chosen = (table[rows] <= points[:, None]).sum(1)
        high = table[rows, chosen]
        low = np.where(chosen > 0, table[rows, chosen - 1], 0.0)
        points = np.clip((points - low) / (high - low), 0.0, BELOW_ONE)
        state = chosen
        paths[:, t] = labels[chosen]
    return paths


def best_paths(lp: np.ndarray, chunk: int = 256) -> Iterator[np.ndarray]:
    """Yield all paths of log-posteriors (T, V), best first, in blocks of at most ``chunk`` rows (n, T).

    A path is the best path with some frames changed; a heap over sorted changes (raise the last changed
    frame's label by one, change the next frame too, or move the last change there) reaches each set of
    changes once, in order of its cost.
    """
    order = np.argsort(-lp, axis=1, kind="stable")
    cost = lp.max(1, keepdims=True) - np.take_along_axis(lp, order, 1)
    frames = np.argsort(cost[:, 1], kind="stable")
    frames = frames[np.isfinite(cost[frames, 1])]
    costs = [[c for c in cost[t].tolist() if np.isfinite(c)] for t in frames]
    heap: list[tuple] = [(0.0, 0, None, -1, 0)]
    pushed, block = 0, []

    def push(total: float, chain: tuple | None, i: int, j: int) -> None:
        nonlocal pushed
        pushed += 1
        heapq.heappush(heap, (total, pushed, chain, i, j))

    while heap:
        total, _, chain, i, j = heapq.heappop(heap)
        path, node = order[:, 0].copy(), (chain, i, j) if i >= 0 else None
        while node is not None:
            node, frame, label = node
            path[frames[frame]] = order[frames[frame], label]
        block.append(path)
        if len(block) == chunk:
            yield np.array(block)
            block = []
        if i >= 0 and j + 1 < len(costs[i]):
            push(total - costs[i][j] + costs[i][j + 1], chain, i, j + 1)
        if i + 1 < len(frames):
            push(total + costs[i + 1][1], (chain, i, j) if i >= 0 else None, i + 1, 1)
            if j == 1:
                push(total - costs[i][1] + costs[i + 1][1], chain, i + 1, 1)
    if block:
        yield np.array(block)


def prefix_search(
    lp: np.ndarray, width: int, *, blank: int = 0, beam: float | None = None
) -> list[tuple[tuple[int, ...], float]]:
    """Prefix beam search: (tokens, log-probability), best first, at most ``width``.

    Paths of one prefix are summed; with no prefix and no label cut, the values are exactly
    log P(y|x), otherwise lower bounds.

    Args:
        width: prefixes kept after each frame.
        beam: labels more than so many nats below the frame's best are skipped; None keeps all.
    """
    limit = np.finfo(float).max if beam is None else beam
    prefixes: list[tuple[int, ...]] = [()]
    children: dict[tuple[int, int], int] = {}
    # Log-probability of each live prefix with the last frame blank, and with it not blank.
    live: dict[int, tuple[float, float]] = {0: (0.0, -np.inf)}
    for row in lp:
        labels = np.flatnonzero(row.max() - row <= limit)
        scores = list(zip(labels.tolist(), row[labels].tolist()))
        after: dict[int, list[float]] = {}
        for node, (with_blank, without) in live.items():
            both = np.logaddexp(with_blank, without)
            last = prefixes[node][-1] if prefixes[node] else None
            for label, score in scores:
                if label == blank:
                    _add(after, node, 0, both + score)
                    continue
                if label == last and without > -np.inf:
                    _add(after, node, 1, without + score)
                reached = with_blank if label == last else both
                if reached == -np.inf:
                    continue
                child = children.get((node, label))
                if child is None:
                    child = children[node, label] = len(prefixes)
                    prefixes.append((*prefixes[node], label))
                _add(after, child, 1, reached + score)
        ranked = sorted(after, key=lambda node: -np.logaddexp(*after[node]))
        live = {node: tuple(after[node]) for node in ranked[:width]}
    return [(prefixes[node], float(np.logaddexp(*pair))) for node, pair in live.items()]


def _add(table: dict[int, list[float]], node: int, slot: int, value: float) -> None:
    pair = table.setdefault(node, [-np.inf, -np.inf])
    pair[slot] = np.logaddexp(pair[slot], value)


def keyed_rng(seed: int, utt_id: str) -> np.random.Generator:
    """Return the generator of one utterance: its draws do not depend on the others'."""
    return np.random.default_rng([seed, *utt_id.encode()])


def distinct(paths: np.ndarray, blank: int = 0) -> dict[tuple[int, ...], list[int]]:
    """Return the distinct token sequences of paths (N, T), each with the rows that gave it, in order."""
    found: dict[tuple[int, ...], list[int]] = {}
    for row, tokens in enumerate(collapse(paths, blank)):
        found.setdefault(tokens, []).append(row)
    return found


def check_tokens(hyps: Sequence[Sequence[int]], labels: int, blank: int) -> None:
    """Refuse token sequences with a blank or a label outside 0..labels-1."""
    for index, hyp in enumerate(hyps):
        for token in hyp:
            if token == blank or not 0 <= token < labels:
                raise DataError(
                    f"hypothesis {index}: token {token} is the blank or outside 0..{labels - 1}; was it "
                    "made with another token list?"
                )
