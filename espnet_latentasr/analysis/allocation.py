"""Where the steps go: how many utterances skip at entry, stop after step k, or use the whole budget.

A skip at entry and a loop that is stopped after its first step (and whose latent is discarded) both
end with K = 0 but are different decisions of the value head, with different costs; they are counted
apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.depths import select_threshold, steps_run


@dataclass(frozen=True)
class Allocation:
    """Counts of U utterances.

    entry: skipped by the entry gate.  stopped: (N,) stopped by the value after step 1..N.  budget: ran
    all N steps unstopped.  kept: (N + 1,) utterances by latents kept, K = 0..N.  mean_kept, mean_run:
    latents kept and steps computed per utterance.
    """

    utterances: int
    entry: int
    stopped: tuple[int, ...]
    budget: int
    kept: tuple[int, ...]
    mean_kept: float
    mean_run: float

    @property
    def skip_rate(self) -> float:
        """Share of utterances that the entry gate refused."""
        return self.entry / self.utterances


def allocation(values: np.ndarray, theta: float, on_halt: str = "keep") -> Allocation:
    """Read the allocation of a value threshold off the values (U, N + 1) of one pass."""
    count, steps = len(values), values.shape[1] - 1
    if count == 0:
        raise ValueError("no utterance: there is nothing to allocate")
    kept, run = select_threshold(values, theta, on_halt), steps_run(values, theta)
    last = np.take_along_axis(values, run[:, None], 1)[:, 0].astype(np.float32)
    entered = run > 0
    stopped = entered & (last < np.float32(theta))
    return Allocation(
        count,
        int((~entered).sum()),
        tuple(int((stopped & (run == k)).sum()) for k in range(1, steps + 1)),
        int((entered & ~stopped).sum()),
        tuple(np.bincount(kept, minlength=steps + 1).tolist()),
        float(kept.mean()),
        float(run.mean()),
    )
