"""Which combination of each rescoring rule makes the fewest errors on a development set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.analysis.oracle_gap import rate_of
from espnet_latentasr.analysis.oracle_lists import study_file
from espnet_latentasr.rescoring.grid import Trial


@dataclass(frozen=True)
class Tried:
    """A combination of a rule, its error rate (a fraction), and whether it is the rule's choice."""

    rule: str
    trial: Trial
    rate: float
    chosen: bool


def choose(
    nbest: Path,
    refs: Mapping[str, str] | None,
    grid: Mapping[str, Sequence[Trial]],
    **options: Any,
) -> list[Tried]:
    """Try every combination on the lists; of equally good ones the first of the grid is chosen.

    Args:
        refs: by utterance; None takes the references in the file.
        options: ``normalizer`` and ``unit`` of `study_file`.
    """
    named = {f"{rule}/{n}": trial for rule, trials in grid.items() for n, trial in enumerate(trials)}
    study = study_file(nbest, refs, {name: trial.config for name, trial in named.items()}, **options)
    rates = {name: rate_of(study, name) for name in named}
    tried = []
    for rule, trials in grid.items():
        mine = [rates[f"{rule}/{n}"] for n in range(len(trials))]
        best = mine.index(min(mine))
        tried += [Tried(rule, t, r, n == best) for n, (t, r) in enumerate(zip(trials, mine))]
    return tried
