"""Train, dev and test of a corpus: knows what they may not share, nothing of where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.data.mixture import nested_sample
from espnet_latentasr.errors import DataError


@dataclass(frozen=True)
class Split:
    """The sets, and by reason the utterances that a published set no longer has."""

    sets: dict[str, KaldiDir]
    removed: dict[str, list[str]]


def split_corpus(
    parts: dict[str, KaldiDir], sentence: Callable[[str], str], dev_speakers: int, seed: int
) -> Split:
    """Divide the published parts (train, test, perhaps dev) so that nothing tested is trained on.

    The test set depends on no draw: a sentence leaves it whether train or dev has it.

    Args:
        sentence: maps a transcript to what makes it the same sentence.
        dev_speakers, seed: how many speakers of train become dev, and which; without ``dev`` only.

    Raises:
        DataError: a speaker or utterance in two parts, too few speakers, or a set left empty.
    """
    parts = dict(parts)
    if "dev" not in parts:
        speakers = parts["train"].spk2utt
        if not 1 <= dev_speakers < len(speakers):
            raise DataError(
                f"{parts['train'].path}: {dev_speakers} speakers asked for dev, but there are "
                f"{len(speakers)}; ask for at least 1, and leave some for train"
            )
        drawn = set(nested_sample(speakers, dev_speakers, seed))
        chosen = {utt for utt, spk in parts["train"].utt2spk.items() if spk in drawn}
        parts["dev"] = parts["train"].subset(chosen)
        parts["train"] = parts["train"].subset(parts["train"].utt2spk.keys() - chosen)
    _check_disjoint(parts)
    said = {
        name: {utt: sentence(text) for utt, text in part.text.items()} for name, part in parts.items()
    }
    trained = set(said["train"].values())
    seen = _having(said["test"], trained | set(said["dev"].values()))
    repeated = _having(said["dev"], trained)
    sets = {
        "train": parts["train"],
        "dev": without(parts["dev"], repeated, "its sentence is in train"),
        "test": without(parts["test"], seen, "its sentence is in train or dev"),
    }
    if seen:
        sets["test_seen"] = parts["test"].subset(seen)
    removed = {
        "test, now in test_seen: sentence is in train or dev": seen,
        "dev: sentence is in train": repeated,
    }
    return Split(sets, removed)


def _check_disjoint(parts: dict[str, KaldiDir]) -> None:
    for (name, one), (other, two) in combinations(parts.items(), 2):
        for what, shared in (
            ("utterance", one.utt2spk.keys() & two.utt2spk.keys()),
            ("speaker", one.spk2utt.keys() & two.spk2utt.keys()),
        ):
            if shared:
                raise DataError(
                    f"{one.path}/utt2spk: {what} '{min(shared)}' is in {name} and in {other} "
                    f"({len(shared)} of them); every {what} in one part only expected: correct the copy"
                )


def _having(said: dict[str, str], sentences: set[str]) -> list[str]:
    return c_sorted(utt for utt, text in said.items() if text in sentences)


def without(data: KaldiDir, ids: Iterable[str], why: str) -> KaldiDir:
    """Return a set without some of its utterances; ``why`` is said if none would be left."""
    kept = data.utt2spk.keys() - set(ids)
    if not kept:
        raise DataError(f"{data.path}: no utterance is left of {len(data.utts)}: of each, {why}")
    return data.subset(kept)
