"""Where the oracle gap of a set of candidate lists is, and how much of it a rule closes.

The oracle takes each list's candidate with the fewest errors; greedy is in every list, so the oracle is
never worse.  What is missing to it is split in two: *coverage*, errors that no candidate avoids, and
*selection*, errors of the choice above the best candidate's.  Tables are lists of rows (mappings);
rates and differences are fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.oracle import depth_oracle, gap_closure
from espnet_latentasr.analysis.oracle_lists import Choices, Judged, Study
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError
from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.correlation import kendall_tau_b, spearman
from espnet_latentasr.stats.multiplicity import holm

Row = dict[str, Any]
REPLICATES, SEED = 10_000, 42
MIN_CANDIDATES = 3  # of fewer, a rank correlation says nothing


def macro_rate(errors: np.ndarray, lengths: np.ndarray) -> float:
    """Mean of the utterances' own error rates; utterances without reference tokens are left out."""
    spoken = lengths > 0
    return float((errors[spoken] / lengths[spoken]).mean()) if spoken.any() else float("nan")


def nested_sizes(longest: int) -> list[int]:
    """Powers of two up to the longest list, and its length."""
    return sorted({2**k for k in range(longest.bit_length())} | {longest})


def oracle_by_size(study: Study, sizes: Sequence[int]) -> list[Row]:
    """The oracle of nested lists.

    ``recoverable``: utterances with a candidate better than greedy; ``coverage``: their share of those
    recoverable with the largest list.
    """
    lengths, greedy = study.lengths, study.greedy
    full = study.oracle() < greedy
    rows = []
    for size in sizes:
        oracle = study.oracle(size)
        base, best = error_rate(greedy, lengths), error_rate(oracle, lengths)
        recoverable = oracle < greedy
        covered = float(recoverable[full].mean()) if full.any() else None
        rows.append(
            {
                "G": size,
                "greedy": base,
                "oracle": best,
                "gap": base - best,
                "relative gap": (base - best) / base if base else None,
                "recoverable": int(recoverable.sum()),
                "coverage": covered,
                "greedy wrong": int((greedy > 0).sum()),
                "not covered": int(((greedy > 0) & ~recoverable).sum()),
            }
        )
    return rows


def diversity(study: Study) -> Row:
    """How different the candidates are; ``full``: lists with as many distinct texts as asked for."""
    counts = np.array([len(judged.errors) for judged in study.lists])
    pairs = np.array([judged.pairwise for judged in study.lists])
    return {
        "G": study.meta.G,
        "distinct": float(counts.mean()),
        "full": float((counts >= study.meta.G).mean()),
        "one candidate": float((counts == 1).mean()),
        "drawn": float(np.mean([judged.drawn for judged in study.lists])),
        "pairwise distance": float(np.nanmean(pairs)) if np.isfinite(pairs).any() else None,
    }


def rule_rows(study: Study, names: Sequence[str], replicates: int = REPLICATES) -> list[Row]:
    """Every rule against greedy.  The family of Holm's correction is exactly these rows.

    ``selection``: recoverable utterances whose choice has more errors than the best candidate;
    ``selection errors`` counts these errors over all utterances, ``coverage errors`` the oracle's.
    ``picked``: recoverable utterances whose choice has the oracle's errors; ``within one``: whose
    choice is at most one token from such a candidate.  ``harmed``: more errors than greedy.  ``rank``:
    of the best candidate in the rule's order, over recoverable utterances.  ``P1 violated``: share,
    among utterances where MBR left greedy, with Var_Q L(choice, .) > Var_Q L(greedy, .).
    """
    lengths, greedy = study.lengths, study.greedy
    rows = []
    for name in names:
        c = study.choices[name]
        errors, oracle = np.array(c.errors), np.array(c.oracle)
        d = paired_bootstrap(greedy, errors, lengths, replicates=replicates, seed=SEED)
        rate, base, best = (error_rate(e, lengths) for e in (errors, greedy, oracle))
        recoverable = oracle < greedy
        rows.append(
            {
                "rule": name,
                "error rate": rate,
                "macro": macro_rate(errors, lengths),
                "delta": d.delta,
                "low": d.low,
                "high": d.high,
                "p": d.p,
                "Holm p": None,
                "closure": gap_closure(base, rate, best),
                "changed": int(np.sum(c.changed)),
                "better": d.better,
                "worse": d.worse,
                "same": d.same,
                "recoverable": int(recoverable.sum()),
                "selection": int((errors[recoverable] > oracle[recoverable]).sum()),
                "selection errors": int((errors - oracle).sum()),
                "coverage errors": int(oracle.sum()),
                "fallback": int(np.sum(c.fallback)),
            }
            | _picked(c, errors == oracle, recoverable)
            | {"P1 violated": proposition1(c)}
        )
    for row, adjusted in zip(rows, holm([row["p"] for row in rows])):
        row["Holm p"] = float(adjusted)
    return rows


def condition_rows(
    study: Study,
    names: Sequence[str],
    sizes: Sequence[int],
    conditions: Mapping[str, str],
    replicates: int = REPLICATES,
) -> list[Row]:
    """Every rule at every list size, over all utterances and by condition (as the noise level).

    The family of Holm's correction is exactly these rows.

    Args:
        conditions: by utterance, exactly the lists' ones.

    Raises:
        DataError: an utterance without condition.
    """
    of = [conditions.get(judged.utt_id) for judged in study.lists]
    if None in of:
        utt_id = study.lists[of.index(None)].utt_id
        raise DataError(f"utterance '{utt_id}' has no condition ({len(conditions)} have one)")
    masks = {"all": np.ones(len(of), dtype=bool)}
    masks |= {name: np.array([c == name for c in of]) for name in c_sorted(set(of))}
    rows: list[Row] = []
    for condition, mask in masks.items():
        lengths, greedy = study.lengths[mask], study.greedy[mask]
        for size in sizes:
            oracle = error_rate(study.oracle(size)[mask], lengths)
            for name in names:
                errors = np.array(study.choices[f"{name}@{size}"].errors)[mask]
                d = paired_bootstrap(greedy, errors, lengths, replicates=replicates, seed=SEED)
                rate, base = error_rate(errors, lengths), error_rate(greedy, lengths)
                row = {"condition": condition, "utterances": int(mask.sum()), "G": size, "rule": name}
                row |= {"greedy": base, "oracle": oracle, "error rate": rate, "delta": d.delta}
                row |= {"low": d.low, "high": d.high, "p": d.p, "Holm p": None}
                rows.append(row | {"closure": gap_closure(base, rate, oracle)})
    for row, adjusted in zip(rows, holm([row["p"] for row in rows])):
        row["Holm p"] = float(adjusted)
    return rows


def _picked(c: Choices, picked: np.ndarray, recoverable: np.ndarray) -> Row:
    """How near the choice comes to the oracle on the recoverable utterances; None without any."""
    if not recoverable.any():
        names = ("picked", "within one", "rank median", "rank mean", "rank P75", "rank P90", "rank > 50")
        return dict.fromkeys(names)
    rank = np.array(c.rank)[recoverable]
    return {
        "picked": float(picked[recoverable].mean()),
        "within one": float((np.array(c.near)[recoverable] <= 1).mean()),
        "rank median": float(np.median(rank)),
        "rank mean": float(rank.mean()),
        "rank P75": float(np.quantile(rank, 0.75)),
        "rank P90": float(np.quantile(rank, 0.9)),
        "rank > 50": float((rank > 50).mean()),
    }


def proposition1(c: Choices) -> float | None:
    """Share of utterances, among those where MBR left greedy, that violate Proposition 1; None: none.

    Var_Q L(mbr, .) <= Var_Q L(greedy, .) is no theorem; how often it fails is reported, never assumed.
    """
    variance = np.array(c.variance)
    moved = np.array(c.changed) & np.isfinite(variance[:, 0])
    if c.config.kind != "mbr" or not moved.any():
        return None
    return float((variance[moved, 0] > variance[moved, 1] + 1e-12).mean())


@dataclass(frozen=True)
class Interval:
    """A mean over utterances and its 95 % percentile interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: np.ndarray, replicates: int = REPLICATES) -> Interval:
    """Bootstrap the mean of values (U,) over utterances; NaN for fewer than two."""
    if len(values) < 2:
        return Interval(float(values.mean()) if len(values) else float("nan"), float("nan"), float("nan"))
    from scipy.stats import bootstrap

    rng = np.random.default_rng(SEED)
    options = {"n_resamples": replicates, "method": "percentile", "vectorized": True}
    found = bootstrap((values,), np.mean, rng=rng, batch=500, **options).confidence_interval
    return Interval(float(values.mean()), float(found.low), float(found.high))


def subsets(study: Study) -> dict[str, np.ndarray]:
    """Masks (U,): all, recoverable or not, and thirds by reference length (tokens)."""
    lengths, recoverable = study.lengths, study.oracle() < study.greedy
    low, high = np.quantile(lengths, [1 / 3, 2 / 3])
    return {
        "all": np.ones(len(lengths), dtype=bool),
        "recoverable": recoverable,
        "greedy optimal": ~recoverable,
        f"length <= {low:g}": lengths <= low,
        f"{low:g} < length <= {high:g}": (lengths > low) & (lengths <= high),
        f"length > {high:g}": lengths > high,
    }


Ranking = tuple[float, float, float]


def list_ranking(judged: Judged, score: str, size: int | None = None) -> Ranking | None:
    """Return Spearman's rho and Kendall's tau-b of (score, errors), and 1 if the best-scored has fewest.

    None where they say nothing: fewer than three scored candidates, or all alike in score or errors.
    A good score has a negative correlation with the errors.
    """
    if score not in judged.scores:
        return None
    values, errors = judged.scores[score][:size], judged.errors[:size]
    known = np.isfinite(values)
    values, errors = values[known], errors[known]
    if len(values) < MIN_CANDIDATES or np.ptp(values) == 0 or np.ptp(errors) == 0:
        return None
    top = float(errors[int(values.argmax())] == errors.min())
    return spearman(values, errors), kendall_tau_b(values, errors), top


def ranking_row(found: Sequence[Ranking | None], replicates: int = REPLICATES) -> Row:
    """Summarise `list_ranking` over utterances; ``anti``: share with rho > 0."""
    defined = np.array([f for f in found if f is not None]).reshape(-1, 3)
    rho = mean_interval(defined[:, 0], replicates)
    some = len(defined) > 0
    return {
        "rho": rho.mean if some else None,
        "low": rho.low if some else None,
        "high": rho.high if some else None,
        "N": len(defined),
        "anti": float((defined[:, 0] > 0).mean()) if some else None,
        "tau-b": float(defined[:, 1].mean()) if some else None,
        "P(top is best)": float(defined[:, 2].mean()) if some else None,
    }


def ranking_rows(study: Study, replicates: int = REPLICATES) -> list[Row]:
    """How well each score ranks the candidates of a list, over all utterances and by subset."""
    rows = []
    for score in _common_scores(study):
        found = [list_ranking(judged, score) for judged in study.lists]
        for name, mask in subsets(study).items():
            inside = [f for f, use in zip(found, mask) if use]
            rows.append({"score": score, "subset": name} | ranking_row(inside, replicates))
    return rows


def ranking_by_size(study: Study, sizes: Sequence[int], replicates: int = REPLICATES) -> list[Row]:
    """The same over nested lists (one generator, so that sizes are comparable)."""
    return [
        {"score": score, "G": size}
        | ranking_row([list_ranking(judged, score, size) for judged in study.lists], replicates)
        for score in _common_scores(study)
        for size in sizes
        if size >= MIN_CANDIDATES
    ]


def _common_scores(study: Study) -> list[str]:
    """Scores of every list; a list of empty texts only has none of the language models' scores."""
    names = dict.fromkeys(name for judged in study.lists for name in judged.scores)
    full = [judged for judged in study.lists if len(judged.errors) >= MIN_CANDIDATES]
    return [name for name in names if all(name in judged.scores for judged in full)]


def sweep_row(study: Study, name: str, replicates: int = REPLICATES) -> Row:
    """Error rate of one variant and its difference to greedy."""
    c, lengths = study.choices[name], study.lengths
    errors = np.array(c.errors)
    d = paired_bootstrap(study.greedy, errors, lengths, replicates=replicates, seed=SEED)
    row = {"error rate": error_rate(errors, lengths), "delta": d.delta}
    row |= {"low": d.low, "high": d.high, "p": d.p}
    base, best = error_rate(study.greedy, lengths), error_rate(np.array(c.oracle), lengths)
    return row | {"closure": gap_closure(base, row["error rate"], best)}


def rate_of(study: Study, name: str) -> float:
    """Error rate of a rule or variant."""
    return error_rate(np.array(study.choices[name].errors), study.lengths)


def best_alpha(study: Study, scorer: str, alphas: Sequence[float], size: int) -> tuple[float, float]:
    """Return (alpha, error rate) of the best interpolation on this very set: an optimistic choice."""
    rates = {alpha: rate_of(study, f"{scorer} alpha={alpha:g}@{size}") for alpha in alphas}
    best = min(rates, key=rates.__getitem__)
    return best, rates[best]


def depth_rows(study: Study, rules: Mapping[str, np.ndarray] | None = None) -> list[Row]:
    """The depth oracle of lists by latent depth 0..N, and how much every fixed depth reaches of it.

    ``distinct``: share of utterances whose depths give different error counts.

    Args:
        rules: depths (U,) chosen by name, beside the fixed ones.
    """
    by_depth = [judged.by_depth for judged in study.lists]
    if any(errors is None for errors in by_depth) or len({len(errors) for errors in by_depth}) != 1:
        return []
    errors, lengths = np.array(by_depth), study.lengths
    utts, depths = errors.shape
    chosen = {f"depth {k}": np.full(utts, k) for k in range(depths)} | dict(rules or {})
    found = depth_oracle(errors, lengths, chosen)
    rows = [
        {
            "rule": name,
            "error rate": error_rate(errors[np.arange(utts), depth], lengths),
            "closure": found.closure[name],
            "picked": found.picked[name],
            "recoverable": found.recoverable,
        }
        for name, depth in chosen.items()
    ]
    oracle = {"rule": "oracle", "error rate": found.rate, "closure": 1.0 if found.recoverable else None}
    return [*rows, oracle | {"picked": found.recoverable, "recoverable": found.recoverable}]
