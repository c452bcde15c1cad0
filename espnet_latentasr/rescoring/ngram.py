"""N-gram language models: ARPA files, back-off scores, Witten-Bell estimation; plain Python.

An ARPA file holds base-10 logarithms; scores are natural ones.  A text begins after ``<s>`` and ends
with ``</s>``.  What an unknown word costs is said explicitly: the model's own ``<unk>``, a number, or an
error.  Reader, writer, scorer and estimator are one file because they share one format.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_lines
from espnet_latentasr.rescoring.lm_text import NORMS, TextOptions, check_choice, normalised

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
LN10 = math.log(10.0)
NEVER = -99.0  # how ARPA files write the probability of <s>, which is never predicted


@dataclass(frozen=True)
class NGramOptions:
    """``bos``: the first word is predicted from ``<s>``; ``eos``: the end is scored.

    ``unknown``: ``model`` takes the model's own ``<unk>``, ``error`` refuses, a number is the log10
    probability of any unknown word.
    """

    bos: bool = True
    eos: bool = True
    unknown: str | float = "model"
    norm: str = "sum"
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, NORMS)
        if isinstance(self.unknown, str):
            check_choice("unknown", self.unknown, ("model", "error"))
        elif not self.unknown <= 0:
            raise ConfigError(f"unknown: {self.unknown!r}, a log10 probability (at most 0) expected")


@dataclass(frozen=True)
class NGramModel:
    """``table``: words of an n-gram -> (log10 probability, log10 back-off weight)."""

    order: int
    table: Mapping[tuple[str, ...], tuple[float, float]]

    def log10(self, word: str, history: tuple[str, ...]) -> float:
        """log10 p(word | history) of a word that is in the model."""
        history = history[max(0, len(history) - self.order + 1) :]
        backed_off = 0.0
        while (found := self.table.get((*history, word))) is None:
            backed_off += self.table.get(history, (0.0, 0.0))[1]
            history = history[1:]
        return backed_off + found[0]


class NGramScorer:
    """Log-probability of texts under an n-gram model."""

    tolerance = 1e-6

    def __init__(self, model: NGramModel, fingerprint: str, options: NGramOptions | None = None) -> None:
        self.model, self.options = model, options or NGramOptions()
        if self.options.unknown == "model" and (UNKNOWN,) not in model.table:
            raise ConfigError(f"unknown: the model has no {UNKNOWN}; give 'error' or a log10 probability")
        for word, wanted in ((BEGIN, self.options.bos), (END, self.options.eos)):
            if wanted and (word,) not in model.table:
                raise ConfigError(f"the model has no {word}; switch bos or eos off to do without")
        self.identity = {
            "scorer": type(self).__name__,
            "model": fingerprint,
            "options": asdict(self.options),
        }

    def _words(self, text: str) -> list[tuple[str, bool]]:
        """Words of the prepared text, and which are scored; a final period is a word of its own."""
        text, period = self.options.text.prepare(text)
        scored = self.options.text.final_period == "scored"
        return [(word, True) for word in text.split()] + [(period, scored)] * bool(period)

    def unknown(self, text: str) -> tuple[int, int]:
        """Number of words of a text that are not in the model, and of all."""
        words = self._words(text)
        return sum((word,) not in self.model.table for word, _ in words), len(words)

    def score(self, texts: Mapping[str, str]) -> dict[str, float | None]:
        """Score texts; ``texts`` maps each to the utterance it comes from.

        Raises:
            DataError: an unknown word, where these are to be refused.
        """
        return {text: self._score(text, utt_id) for text, utt_id in texts.items()}

    def _score(self, text: str, utt_id: str) -> float | None:
        history: tuple[str, ...] = (BEGIN,) if self.options.bos else ()
        terms = []
        for word, scored in [*self._words(text), *[(END, True)] * self.options.eos]:
            if (word,) not in self.model.table or word == UNKNOWN:
                if self.options.unknown == "error":
                    raise DataError(
                        f"utterance '{utt_id}': word '{word}' of {text!r} is not in the n-gram model; "
                        "check the casing, or choose what unknown words cost (unknown)"
                    )
                word = UNKNOWN
            if word == UNKNOWN and self.options.unknown != "model":
                value = float(self.options.unknown)
            else:
                value = self.model.log10(word, history)
            history = (*history, word)
            if scored:
                terms.append(value * LN10)
        return normalised(terms, text, self.options.norm)


# ARPA files


def read_arpa(path: str | Path) -> NGramModel:
    """Read an ARPA file, plain or gzipped.

    Raises:
        DataError: naming file and line, for anything that is not ARPA, counts that do not hold, an
            n-gram given twice, or a file that was cut off.
    """
    path = Path(path)
    announced: dict[int, int] = {}
    counted: Counter[int] = Counter()
    table: dict[tuple[str, ...], tuple[float, float]] = {}
    order, ended = 0, False
    for number, line in read_lines(path, "an ARPA file (or its .gz)"):
        where, line = f"{path}:{number}", line.strip(" \t\r\n")
        if not line or ended or (line == "\\data\\" and not announced):
            continue
        if line == "\\end\\":
            ended = True
        elif match := re.fullmatch(r"ngram\s+(\d{1,4})\s*=\s*(\d{1,18})", line):
            announced[int(match[1])] = int(match[2])
            if list(announced) != list(range(1, len(announced) + 1)):
                raise DataError(f"{where}: {line!r:.200} announced, orders 1, 2, .. in turn expected")
        elif match := re.fullmatch(r"\\(\d{1,4})-grams:", line):
            order = int(match[1])
        elif not order:
            if announced:
                raise DataError(f"{where}: {line!r:.200}, 'ngram N=COUNT' or '\\1-grams:' expected")
        else:
            words, values = _entry(line, order, where)
            if words in table:
                raise DataError(f"{where}: n-gram '{' '.join(words)}' is given twice")
            table[words] = values
            counted[order] += 1
    if not ended:
        raise DataError(f"{path}: no '\\end\\' line: not an ARPA file, or cut off")
    if not counted or dict(counted) != {n: count for n, count in announced.items() if count}:
        raise DataError(f"{path}: {dict(counted)} n-grams found, {announced} announced in '\\data\\'")
    return NGramModel(max(announced), table)


def _entry(line: str, order: int, where: str) -> tuple[tuple[str, ...], tuple[float, float]]:
    parts = re.split(r"[ \t]+", line)
    try:
        if len(parts) not in (order + 1, order + 2):
            raise ValueError(f"{len(parts)} fields")
        probability = float(parts[0])
        backoff = float(parts[order + 1]) if len(parts) > order + 1 else 0.0
        if not probability <= 1e-6 or not backoff < math.inf:
            raise ValueError("no log10 probability")
    except ValueError as error:
        raise DataError(
            f"{where}: {line!r:.500} is no {order}-gram 'LOG10P WORDS [LOG10BACKOFF]' ({error})"
        ) from None
    return tuple(parts[1 : order + 1]), (probability, backoff)


def write_arpa(path: str | Path, model: NGramModel) -> None:
    """Write a model as an ARPA file, n-grams sorted, whole or not at all."""
    by_order: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    for words in sorted(model.table):
        by_order[len(words)].append(words)
    lines = ["\\data\\", *(f"ngram {n}={len(by_order[n])}" for n in range(1, model.order + 1))]
    for n in range(1, model.order + 1):
        lines += ["", f"\\{n}-grams:"]
        for words in by_order[n]:
            probability, backoff = model.table[words]
            tail = f"\t{backoff!r}" if n < model.order and words[-1] != END else ""
            lines.append(f"{probability!r}\t{' '.join(words)}{tail}")
    atomic_write_text(path, "\n".join([*lines, "", "\\end\\", ""]))


def file_fingerprint(path: str | Path) -> str:
    """Identity of a model file."""
    return f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]}"


# Estimation


def estimate(sentences: Iterable[str], order: int) -> NGramModel:
    """Estimate an interpolated Witten-Bell model (Chen and Goodman 1998, section 2.6).

        p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h))

    with T(h) the number of different words seen after h, h' the history without its first word, and the
    uniform distribution over all words, ``</s>`` and ``<unk>`` below the unigrams.

    Raises:
        DataError: no sentence, or a reserved word in one.
    """
    if order < 1:
        raise ConfigError(f"order: {order}, at least 1 expected")
    counts: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(order + 1)]
    for sentence in sentences:
        words = sentence.split()
        if reserved := {BEGIN, END, UNKNOWN} & set(words):
            raise DataError(f"training sentence {sentence!r} contains the reserved word {min(reserved)}")
        padded = (BEGIN, *words, END)
        for n in range(1, order + 1):
            # <s> is read, never predicted.
            counts[n].update(padded[i : i + n] for i in range(n == 1, len(padded) - n + 1))
    if not counts[1]:
        raise DataError("no sentence to estimate an n-gram model from")
    uniform = 1.0 / (len(counts[1]) + 1)
    probability: dict[tuple[str, ...], float] = {}
    weight: dict[tuple[str, ...], float] = {}
    for n in range(1, order + 1):
        seen: Counter[tuple[str, ...]] = Counter()
        kinds: Counter[tuple[str, ...]] = Counter()
        for gram, count in counts[n].items():
            seen[gram[:-1]] += count
            kinds[gram[:-1]] += 1
        for history in seen:
            weight[history] = kinds[history] / (seen[history] + kinds[history])
        for gram, count in counts[n].items():
            history = gram[:-1]
            lower = probability[gram[1:]] if n > 1 else uniform
            total = seen[history] + kinds[history]
            probability[gram] = (count + kinds[history] * lower) / total
    probability[(UNKNOWN,)] = weight[()] * uniform
    table = {gram: (math.log10(p), math.log10(weight.get(gram, 1.0))) for gram, p in probability.items()}
    table[(BEGIN,)] = (NEVER, math.log10(weight.get((BEGIN,), 1.0)))
    return NGramModel(order, table)
