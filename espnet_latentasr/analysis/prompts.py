"""The prompt check: what the prompt alone changes, for the frozen recogniser and for the latent one.

A gain over the frozen recogniser under an unusual prompt, or one that goes away when the recogniser
finds the language itself, is a gain of the prompt.  Compared are decodings that differ in the prompt
and in nothing else: same recogniser, weights, decoding rule and utterances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import Decoded, check_same_utterances
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language

OFFICIAL = PromptConfig()
NO_LINE = "no line"
SHOWN = 40  # characters of a text within a prompt's description


@dataclass(frozen=True)
class PromptSet:
    """One system on one set under two prompts or more: tag -> decoding, the reference prompt's first.

    The reference is the official prompt where it was decoded, else that of the first tag in C order.
    """

    test_set: str
    decoded: Mapping[str, Decoded]

    @property
    def reference(self) -> str:
        return next(iter(self.decoded))


def prompt_sets(decoded: Mapping[tuple[str, str], Decoded]) -> list[PromptSet]:
    """Find the decodings, keyed by (tag, set), that differ in their prompt only.

    A second decoding of one system under one prompt is left out.

    Raises:
        DataError: decodings of different utterances or references, or scored differently.
    """
    groups: dict[tuple, dict[PromptConfig, str]] = {}
    for tag, name in sorted(decoded, key=lambda key: (key[1].encode(), key[0].encode())):
        found = decoded[tag, name]
        if found.prompt is not None:
            groups.setdefault((name, found.system), {}).setdefault(found.prompt, tag)
    sets = []
    for (name, _), tags in groups.items():
        if len(tags) < 2:
            continue
        first = tags.get(OFFICIAL, next(iter(tags.values())))
        order = [first, *(tag for tag in tags.values() if tag != first)]
        for tag in order[1:]:
            check_same_utterances(decoded[first, name], decoded[tag, name])
        sets.append(PromptSet(name, {tag: decoded[tag, name] for tag in order}))
    return sets


def describe(prompt: PromptConfig) -> str:
    """A prompt in a few words: what it has that the official one has not."""
    parts = ["language auto"] if prompt.language == "auto" else []
    for name, text in (("user text", prompt.user_text), ("context", prompt.context)):
        if text:
            short = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
            parts.append(f"{name} “{short}”")
    return ", ".join(parts) or "official"


def changed_texts(reference: Decoded, other: Decoded) -> float:
    """Share of utterances whose normalised text is another one under the other prompt."""
    pairs = zip(reference.hypotheses, other.hypotheses, strict=True)
    return float(np.mean([first != second for first, second in pairs]))


def detected_language(line: str) -> str:
    """Code of the language that a recogniser wrote (``language English``, ``<|en|>``); `NO_LINE` if none.

    What is no known language stays as it was written.
    """
    name = line.removeprefix("language").strip().removeprefix("<|").removesuffix("|>")
    try:
        return get_language(name).code if name else NO_LINE
    except DataError:
        return name


@dataclass(frozen=True)
class Detected:
    """Languages that the recogniser wrote; ``counts`` by code, the most frequent first.

    right: share of utterances where it is the spoken one; None where that is not known.
    """

    counts: dict[str, int]
    right: float | None


def detected(decoding: Decoded, spoken: Mapping[str, str] | None = None) -> Detected | None:
    """Count what was written; None where the recogniser was told the language.

    Args:
        spoken: utterance -> code or name (``utt2lang``).

    Raises:
        DataError: an utterance without a spoken language, or with an unknown one.
    """
    if decoding.languages is None:
        return None
    written = [detected_language(line) for line in decoding.languages]
    right = None
    if spoken is not None:
        if missing := [utt for utt in decoding.utts if utt not in spoken]:
            raise DataError(
                f"{decoding.folder}: utterance '{missing[0]}' ({len(missing)} in all) has no language in "
                "utt2lang; add a line 'UTT LANG' for each"
            )
        codes = [get_language(spoken[utt]).code for utt in decoding.utts]
        right = float(np.mean([a == b for a, b in zip(written, codes)]))
    counts = sorted(Counter(written).items(), key=lambda pair: (-pair[1], pair[0].encode()))
    return Detected(dict(counts), right)
