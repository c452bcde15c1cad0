"""One experiment's decoded sets, read and checked for a report; decodes and scores nothing.

Layout: ``<experiment>/<inference tag>/<set>/{score_<unit>/,latent.jsonl,nbest.jsonl}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.analysis.decoded import Decoded, other_prompt, read_decoded
from espnet_latentasr.analysis.depths import Depths, errors_at, has_all_depths, read_depths
from espnet_latentasr.config import read_yaml
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import read_score_json, score_dir_name

FROZEN_TAG = "decode_frozen"
UNITS = ("wer", "cer", "mer")  # the order of tables
Key = tuple[str, str]  # inference tag, set


@dataclass(frozen=True)
class Options:
    """What the report is told.

    unit: None: that of `main_units` which most sets have.  normalizer, lang: what the sets must have
    been scored with; None: whatever it was.  dev: the set on which thresholds are chosen, never a test
    set.  tag: the decoding whose utterances are shown; None:
    one with all depths, else the first latent one.  train: sets to compare with the test sets; None:
    those that the training configuration names.
    """

    data_root: Path = Path("dump/raw")
    dev: str = "valid_noisy"
    unit: str | None = None
    normalizer: str | None = None
    lang: str | None = None
    frozen_tag: str = FROZEN_TAG
    tag: str | None = None
    theta: float = 0.0
    on_halt: str = "keep"
    train: Sequence[str] | None = None


@dataclass(frozen=True)
class Experiment:
    """Everything decoded and scored in ``unit``, keyed by (tag, set) in C-locale order.

    depths: those sets of which every depth was decoded.
    """

    path: Path
    options: Options
    unit: str
    decoded: dict[Key, Decoded]
    depths: dict[Key, Depths]

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def test_keys(self) -> list[Key]:
        """Keys of all sets but the development set."""
        return [key for key in self.decoded if key[1] != self.options.dev]

    def depth_tags(self) -> list[str]:
        """Configurations with a test set of which every depth was decoded."""
        return list(dict.fromkeys(tag for tag, name in self.depths if name != self.options.dev))

    def shown_tag(self) -> str | None:
        """The configuration whose utterances are listed; None: there is only the frozen model."""
        tags = list(dict.fromkeys(tag for tag, _ in self.test_keys()))
        if self.options.tag is not None:
            if self.options.tag not in tags:
                raise ConfigError(
                    f"--tag {self.options.tag}: no decoded test set of that name in {self.path}; there "
                    f"are {', '.join(tags)}"
                )
            return self.options.tag
        latent = [tag for tag in tags if tag != self.options.frozen_tag and self._same_prompt(tag)]
        return next((tag for tag in latent if tag in self.depth_tags()), next(iter(latent), None))

    def _same_prompt(self, tag: str) -> bool:
        """Whether a configuration read the prompt that the frozen decoding read."""
        frozen = {n: d for (t, n), d in self.decoded.items() if t == self.options.frozen_tag}
        own = {n: d for (t, n), d in self.decoded.items() if t == tag and n in frozen}
        return not any(other_prompt(frozen[name], found) for name, found in own.items())


def load_experiment(path: str | Path, options: Options) -> Experiment:
    """Read every scored set of an experiment.

    Raises:
        DataError: nothing scored, a set scored otherwise than asked, or a pass over all depths whose
            errors at the decoded depth are not the scored ones.
    """
    path = Path(path)
    unit = options.unit
    if unit is None:
        units = main_units(path)
        unit = max(units, key=lambda found: len(units[found]), default=UNITS[0])
    decoded = read_sets(path, unit)
    if not decoded:
        raise DataError(
            f"{path}: no {score_dir_name(unit)}/score.json below <tag>/<set>; decode and score it "
            f"(stages 12, 13){_other_units(path, unit)}"
        )
    for found in decoded.values():
        _check_scoring(found, options)
    depths = {
        key: _depths(found, options.data_root / key[1])
        for key, found in decoded.items()
        if has_all_depths(found.folder)
    }
    return Experiment(path, options, unit, decoded, depths)


def read_sets(path: Path, unit: str) -> dict[Key, Decoded]:
    """Every set of an experiment that was scored in a unit, in C-locale order of tag and set."""
    found = path.glob(f"*/*/{score_dir_name(unit)}/score.json")
    folders = sorted((file.parents[1] for file in found), key=_sort_key)
    return {folder.parts[-2:]: read_decoded(folder, unit) for folder in folders}


def main_units(path: Path) -> dict[str, list[Path]]:
    """Scored sets by their main unit: the first of their language's that they were scored in.

    A set without one of them goes to the first unit it was scored in; keys are in the order of `UNITS`.
    """
    scored: dict[Path, dict[str, dict]] = {}
    for unit in UNITS:
        for file in path.glob(f"*/*/{score_dir_name(unit)}/score.json"):
            scored.setdefault(file.parents[1], {})[unit] = read_score_json(file)
    units: dict[str, list[Path]] = {unit: [] for unit in UNITS}
    for folder in sorted(scored, key=_sort_key):
        found = scored[folder]
        code = next(iter(found.values())).get("language")
        wanted = () if code is None else get_language(code).units
        units[next((unit for unit in wanted if unit in found), next(iter(found)))].append(folder)
    return {unit: folders for unit, folders in units.items() if folders}


def _other_units(path: Path, unit: str) -> str:
    others = [other for other in UNITS if other != unit and any(path.glob(f"*/*/score_{other}"))]
    return f"; there is {', '.join(others)} (--unit)" if others else ""


def training_sets(path: Path) -> list[str]:
    """Names of the sets an experiment was trained and validated on, from its ``config.yaml``; or none."""
    file = path / "config.yaml"
    if not file.is_file():
        return []
    config = read_yaml(file)
    try:
        entries = [
            Path(entry[0]).parent.name
            for part in ("train", "valid")
            for entry in config.get(f"{part}_data_path_and_name_and_type") or []
        ]
    except (AttributeError, TypeError, LookupError, ValueError) as error:
        raise DataError(
            f"{file}: not a training configuration of ESPnet ({error}); name the sets with --train"
        ) from error
    return list(dict.fromkeys(entries))


def _sort_key(folder: Path) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in folder.parts)


def _check_scoring(found: Decoded, options: Options) -> None:
    lang = None if options.lang is None else get_language(options.lang).code
    asked = {"normalizer": options.normalizer, "language": lang}
    for key, value in asked.items():
        if value is not None and found.summary.get(key) != value:
            raise DataError(
                f"{found.folder}: scored with {key} '{found.summary.get(key)}', '{value}' asked; score "
                "it again (stage 13), or leave the option out"
            )


def _depths(found: Decoded, data_dir: Path) -> Depths:
    """All depths of a set, whose errors at the decoded depth must be those that were scored."""
    if not (data_dir / "text").is_file():
        raise DataError(
            f"{found.folder}: counting the errors of every depth needs {data_dir}/text, which is not "
            "there; name its parent with --data_root"
        )
    references = read_kaldi_table(data_dir / "text", allow_empty=True)
    normalizer = get_normalizer(found.summary["normalizer"])
    depths = read_depths(found.folder, references, normalizer, found.summary["unit"])
    if not depths.lengths.sum():
        raise DataError(f"{data_dir}/text: no reference token at all, so that there is no error rate")
    if depths.steps < int(found.steps.max(initial=0)):
        raise DataError(f"{found.folder}: latent.jsonl has more steps than nbest.jsonl; decode it again")
    again = errors_at(depths.errors, found.steps)
    if (odd := np.flatnonzero(again != found.errors)).size:
        row = odd[0]
        raise DataError(
            f"{found.folder}: utterance '{found.utts[row]}': {again[row]} errors at its depth "
            f"{found.steps[row]}, {found.errors[row]} scored ({odd.size} utterances differ); were "
            f"{data_dir}/text, the normaliser or the decoding changed since? score it again (stage 13)"
        )
    return depths
