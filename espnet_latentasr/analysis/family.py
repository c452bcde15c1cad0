"""Tables of a family of experiments over several seeds; reads decoded sets, trains and decodes nothing.

Thresholds and fixed depths are chosen on the development set, seed by seed, and applied to the test
sets.  Differences are paired over utterances with the errors of all seeds added up, so an utterance
counts once, whatever the number of seeds; p values are Holm's over all tests of a table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.analysis import policies
from espnet_latentasr.analysis.calibration import realised_gain
from espnet_latentasr.analysis.depths import Depths, errors_at, has_all_depths, read_depths
from espnet_latentasr.analysis.family_plan import Family, System
from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.stats.bootstrap import PairedDifference, paired_bootstrap
from espnet_latentasr.stats.comparisons import caption, correct
from espnet_latentasr.stats.correlation import spearman
from espnet_latentasr.stats.seeds import mean_sd
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import Normalizer, get_normalizer


@dataclass(frozen=True)
class Place:
    """Where results lie: experiments, references, and the names of the decoded sets."""

    expdir: Path
    data_root: Path
    dev_set: str
    test_sets: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One system, one seed, one set: errors (U,) as trained, and all depths where there are any."""

    utts: tuple[str, ...]
    errors: np.ndarray
    lengths: np.ndarray
    depths: Depths | None


@dataclass(frozen=True)
class Choice:
    """Depths K (U,) a rule gives on a set, per seed."""

    name: str
    depth: tuple[np.ndarray, ...]


def read_run(folder: Path, references: dict[str, str], normalizer: Normalizer, unit: str) -> Run:
    """Read one decoded set: with all depths (a latent system) or its text (an adapted recogniser).

    Raises:
        DataError: not decoded, or other utterances than the references.
    """
    if has_all_depths(folder):
        depths = read_depths(folder, references, normalizer, unit)
        return Run(depths.utts, depths.errors[:, -1], depths.lengths, depths)
    if not (folder / "text").is_file():
        raise DataError(f"{folder}/text: not found; this experiment is not decoded yet")
    result = score(references, read_kaldi_table(folder / "text", allow_empty=True), unit, normalizer)
    utts = tuple(c_sorted(result.utterances))
    counts = [result.utterances[utt].counts for utt in utts]
    return Run(
        utts,
        np.array([c.errors for c in counts], dtype=np.int64),
        np.array([c.reference_length for c in counts], dtype=np.int64),
        None,
    )


def surest_depth(log_probs: np.ndarray) -> np.ndarray:
    """The depth (U,) whose text has the highest mean log-probability; all depths must be decoded."""
    return log_probs.argmax(axis=1)


def halting_choices(dev: Sequence[Depths], test: Sequence[Depths]) -> list[Choice]:
    """Every halting rule on a test set, its number chosen on dev, one entry per seed in both."""

    def each(name: str, rule: Callable[[Depths, Depths], np.ndarray]) -> Choice:
        return Choice(name, tuple(rule(d, t) for d, t in zip(dev, test, strict=True)))

    return [
        each("never", lambda d, t: np.zeros(len(t.utts), dtype=np.int64)),
        each("always", lambda d, t: policies.select_fixed(len(t.utts), t.steps)),
        each("fixed K", lambda d, t: policies.choose_fixed(d).apply(t)),
        each("theta, keep", lambda d, t: policies.choose_theta(d, "keep").apply(t)),
        each("theta, discard", lambda d, t: policies.choose_theta(d, "discard").apply(t)),
        each("confidence gate", lambda d, t: policies.choose_confidence(d).apply(t)),
        each("surest depth", lambda d, t: surest_depth(t.log_probs)),
        each("oracle", lambda d, t: policies.select_oracle(t.errors)),
    ]


def pooled_difference(
    baseline: Sequence[np.ndarray], system: Sequence[np.ndarray], lengths: np.ndarray
) -> PairedDifference:
    """Paired difference of errors (U,) added up over seeds; one array each for a single system."""
    seeds = len(system)
    first = np.sum(baseline, axis=0) if len(baseline) > 1 else baseline[0] * seeds
    return paired_bootstrap(first, np.sum(system, axis=0), lengths * seeds)


def _percent(errors: Sequence[np.ndarray], lengths: np.ndarray) -> str:
    found = mean_sd([100 * float(e.sum() / lengths.sum()) for e in errors])
    return f"{found.mean:.2f}" + (f" ± {found.sd:.2f}" if found.n > 1 else "")


def _difference(d: PairedDifference, adjusted: float) -> str:
    return f"{100 * d.delta:+.2f}|[{100 * d.low:+.2f}, {100 * d.high:+.2f}]|{d.p:.4f}|{adjusted:.4f}"


class FamilyResult:
    """All runs of a family: ``runs[set][system name]`` is a list over seeds."""

    def __init__(
        self,
        family: Family,
        seeds: Sequence[int],
        asr_args: str,
        place: Place,
        normalizer_name: str,
        unit: str,
    ) -> None:
        self.family, self.seeds, self.place, self.unit = family, seeds, place, unit
        normalizer = get_normalizer(normalizer_name)
        self.normalizer = normalizer_name
        self.runs: dict[str, dict[str, list[Run]]] = {}
        for name in (place.dev_set, *place.test_sets):
            references = read_kaldi_table(place.data_root / name / "text", allow_empty=True)
            self.runs[name] = {
                system.name: [
                    read_run(self._folder(system, seed, asr_args) / name, references, normalizer, unit)
                    for seed in seeds
                ]
                for system in family.systems
            }

    def _folder(self, system: System, seed: int, asr_args: str) -> Path:
        tag = f"asr_{system.tag(seed, asr_args)}"
        return self.place.expdir / tag / Path(system.decode).stem

    def frozen(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Errors and lengths (U,) of the frozen recogniser: depth 0, which all systems must share."""
        found = [run for runs in self.runs[name].values() for run in runs if run.depths is not None]
        if not found:
            raise DataError(
                f"family {self.family.name}: no system with latent depths, so the frozen recogniser's "
                "errors are not known; add one"
            )
        errors = found[0].depths.errors[:, 0]
        for run in found[1:]:
            if run.utts != found[0].utts or not np.array_equal(run.depths.errors[:, 0], errors):
                raise DataError(
                    f"family {self.family.name}, {name}: depth 0 is not the same text in all systems: "
                    "they were decoded with different recognisers or data"
                )
        return errors, found[0].lengths

    def systems_table(self, name: str) -> str:
        """Markdown: every system as trained (all N steps) against frozen and against the reference."""
        frozen, lengths = self.frozen(name)
        runs = self.runs[name]
        against = [pooled_difference([frozen], [r.errors for r in rs], lengths) for rs in runs.values()]
        reference = self.family.reference
        others = [] if reference is None else [label for label in runs if label != reference]
        base = [] if reference is None else [run.errors for run in runs[reference]]
        found = [pooled_difference(base, [r.errors for r in runs[o]], lengths) for o in others]
        tested = correct([*against, *found])
        beside = {
            label: _difference(row.difference, row.p_holm)
            for label, row in zip(others, tested[len(against) :])
        }
        header = f"|system|{self.unit.upper()} %|Δ frozen|95 % CI|p|p Holm|better/worse/same|"
        if reference is not None:
            header += f"Δ {reference}|95 % CI|p|p Holm|"
        rows = [header, "|" + "---|" * (header.count("|") - 1)]
        rows.append(f"|frozen|{_percent([frozen], lengths)}" + "|" * (header.count("|") - 2))
        for (label, rs), own in zip(runs.items(), tested):
            d = own.difference
            row = f"|{label}|{_percent([r.errors for r in rs], lengths)}|{_difference(d, own.p_holm)}|"
            row += f"{d.better}/{d.worse}/{d.same}|"
            if reference is not None:
                row += beside.get(label, "|||") + "|"
            rows.append(row)
        return "\n".join(rows) + f"\n\n{caption(len(tested), bh=False)}\n"

    def halting_table(self, name: str) -> str:
        """Markdown: every halting rule of every latent system, numbers chosen on dev."""
        dev, runs = self.runs[self.place.dev_set], self.runs[name]
        latent = [label for label, rs in runs.items() if all(r.depths is not None for r in rs)]
        lines, tests = [], []
        for label in latent:
            test = [run.depths for run in runs[label]]
            choices = halting_choices([run.depths for run in dev[label]], test)
            lengths = test[0].lengths
            errors = {
                c.name: [errors_at(t.errors, k) for t, k in zip(test, c.depth)] for c in choices
            }
            for choice in choices:
                k = float(np.mean([depth.mean() for depth in choice.depth]))
                skipped = float(np.mean([(depth == 0).mean() for depth in choice.depth]))
                line = f"|{label}|{choice.name}|{_percent(errors[choice.name], lengths)}|{k:.2f}|"
                line += f"{100 * skipped:.1f}|"
                judged = choice.name not in ("never", "always", "oracle")
                if judged:
                    pair = [
                        pooled_difference(errors[base], errors[choice.name], lengths)
                        for base in ("always", "never")
                    ]
                    tests += pair
                lines.append((line, judged))
        adjusted = iter([(row.difference, row.p_holm) for row in correct(tests)])
        header = "|system|rule|" + f"{self.unit.upper()} %|mean K|skipped %|"
        header += "Δ always|95 % CI|p|p Holm|Δ never|95 % CI|p|p Holm|"
        rows = [header, "|" + "---|" * (header.count("|") - 1)]
        for line, judged in lines:
            if judged:
                line += "|".join(_difference(*next(adjusted)) for _ in range(2)) + "|"
            else:
                line += "|" * 8
            rows.append(line)
        return "\n".join(rows) + f"\n\n{caption(len(tests), bh=False)}\n"

    def values_table(self, name: str) -> str:
        """Markdown: does the value head know the gain?  Rank correlations, averaged over seeds."""
        header = "|system|depth WER % 0..N|rho(v_0, gain)|rho(v_N, gain)|best depth > 0 %|texts differ %|"
        rows = [header, "|" + "---|" * (header.count("|") - 1)]
        for label, rs in self.runs[name].items():
            if any(run.depths is None for run in rs):
                continue
            depths = [run.depths for run in rs]
            by_depth = np.mean([d.errors.sum(0) / d.lengths.sum() for d in depths], axis=0)
            rho = [
                float(np.mean([spearman(d.values[:, k], realised_gain(d.errors, k)) for d in depths]))
                for k in (0, depths[0].steps)
            ]
            deeper = np.mean([(policies.select_oracle(d.errors) > 0).mean() for d in depths])
            distinct = np.mean([d.distinct for d in depths])
            rows.append(
                f"|{label}|{' '.join(f'{100 * rate:.2f}' for rate in by_depth)}|{rho[0]:+.3f}|"
                f"{rho[1]:+.3f}|{100 * deeper:.1f}|{100 * distinct:.1f}|"
            )
        return "\n".join(rows) + "\n"

    def csv(self) -> str:
        """Long form: one row per system, seed, set and depth (or the adapted recogniser's text)."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(("family", "system", "seed", "set", "depth", "errors", "length"))
        for name, systems in self.runs.items():
            for label, rs in systems.items():
                for seed, run in zip(self.seeds, rs):
                    total = int(run.lengths.sum())
                    columns = [run.errors] if run.depths is None else list(run.depths.errors.T)
                    for depth, errors in enumerate(columns):
                        shown = "" if run.depths is None else depth
                        row = (self.family.name, label, seed, name, shown, int(errors.sum()), total)
                        writer.writerow(row)
        return buffer.getvalue()


def write_family(
    family: Family,
    seeds: Sequence[int],
    asr_args: str,
    place: Place,
    normalizer: str,
    unit: str,
) -> Path:
    """Write ``family_<name>.md`` and ``.csv`` below the experiments; returns the Markdown's path."""
    result = FamilyResult(family, seeds, asr_args, place, normalizer, unit)
    parts = [
        f"## Family {family.name}\n",
        f"Seeds {' '.join(map(str, seeds))}; mean ± sd over seeds; normaliser {normalizer}; numbers of "
        f"rules chosen on {place.dev_set}; training arguments: {asr_args or 'none'}; activation "
        f"utterances: {', '.join(sorted({str(s.num_activation) for s in family.systems}))}.\n",
    ]
    for name in place.test_sets:
        parts += [f"### {name}\n", result.systems_table(name)]
        parts += ["Halting rules:\n", result.halting_table(name)]
        parts += ["Values and depths:\n", result.values_table(name)]
    path = place.expdir / f"family_{family.name}.md"
    atomic_write_text(path.with_suffix(".csv"), result.csv())
    atomic_write_text(path, "\n".join(parts))
    return path
