"""What the frames of a CTC posterior do: dead, active or ambiguous, given a hypothesis or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from espnet_latentasr.rescoring.ctc import alignment_posterior

DEAD, ACTIVE = 0.99, 0.5


def frame_shares(dead: np.ndarray, active: np.ndarray) -> dict[str, float]:
    """Return the shares of frames that are dead, active and neither, from disjoint masks (T,)."""
    shares = {"dead": float(dead.mean()), "active": float(active.mean())}
    return shares | {"ambiguous": float((~dead & ~active).mean())}


def frame_rows(
    utt_id: str, lp: np.ndarray, tokens: Sequence[int], *, blank: int = 0
) -> list[dict[str, float | str]]:
    """Decompose the frames of log-posteriors (T, V) of one utterance in two ways.

    ``gamma`` is given the hypothesis: dead is gamma(blank) > 0.99, active gamma(blank) < 0.5.
    ``posterior`` is what the network says frame by frame: dead is p(blank) > 0.99, active a label with
    p > 0.5.  ``entropy`` is the mean over frames in nats, ``frames_per_token`` is T / L (NaN if L = 0).
    """
    gamma = alignment_posterior(torch.from_numpy(lp), tokens, blank=blank).clamp(0, 1).numpy()
    p = np.exp(lp)
    others = np.delete(p, blank, 1).max(1)
    per_token = len(lp) / len(tokens) if len(tokens) else float("nan")
    rows = []
    for variant, values, active in (
        ("gamma", gamma, gamma[:, blank] < ACTIVE),
        ("posterior", p, others > ACTIVE),
    ):
        row: dict[str, float | str] = {"utt_id": utt_id, "variant": variant, "frames": len(lp)}
        row |= {"tokens": len(tokens), "frames_per_token": per_token}
        row |= frame_shares(values[:, blank] > DEAD, active)
        logs = np.log(values, where=values > 0, out=np.zeros_like(values))
        rows.append(row | {"entropy": float(-(values * logs).sum(1).mean())})
    return rows
