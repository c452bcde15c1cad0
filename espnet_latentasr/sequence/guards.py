"""What is measured before the first step of sequence training, and what it must not be; numbers only.

A broken target (wrong case, another token list) does not show in a loss that falls: it shows as unknown
tokens in the encoded reference and as nats per token far above those of a trained model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from espnet_latentasr.errors import DataError
from espnet_latentasr.sequence.candidates import Drawn, Tokens
from espnet_latentasr.sequence.config import ListConfig, SequenceConfig

FEW = 0.05  # a share of usable utterances below this is logged as a warning


@dataclass(frozen=True)
class GuardReport:
    """Measured on ``utterances`` training utterances.

    unk_rate: <unk> among reference tokens.  nll_per_token: mean -log P(reference) in nats over all tokens
    of references that fit their frames.  impossible: share of those that do not.  usable: share of
    utterances whose candidates differ in errors.  better: share with a candidate better than greedy.
    greedy, oracle: word error rates (fractions) of the lists, ``gap`` their difference.
    """

    utterances: int
    unk_rate: float
    nll_per_token: float
    impossible: float
    usable: float
    better: float
    greedy: float
    oracle: float
    gap: float
    size: int
    num_paths: int
    nbest_scale: float
    output_beam: float | None


@dataclass
class Measured:
    """Sums over the utterances seen so far."""

    drawn: list[Drawn] = field(default_factory=list)
    tokens: int = 0
    unknown: int = 0
    impossible: int = 0
    nll: float = 0.0
    scored: int = 0

    def add(
        self, targets: Sequence[Tokens], nll: Sequence[float], drawn: Sequence[Drawn], unk: int | None
    ) -> None:
        """Take in a batch; ``nll`` is inf for a reference that does not fit its frames."""
        for tokens, nats in zip(targets, nll, strict=True):
            self.tokens += len(tokens)
            self.unknown += 0 if unk is None else tokens.count(unk)
            if nats == float("inf"):
                self.impossible += 1
            else:
                self.nll, self.scored = self.nll + nats, self.scored + len(tokens)
        self.drawn += drawn

    def report(self, config: ListConfig) -> GuardReport:
        """Return the rates.

        Raises:
            DataError: no utterance was seen.
        """
        count = len(self.drawn)
        if not count:
            raise DataError("no training utterance was read; look at the shape files and the data")
        words = max(sum(d.words for d in self.drawn), 1)
        greedy = sum(int(d.errors[0]) for d in self.drawn) / words
        oracle = sum(int(d.errors.min()) for d in self.drawn) / words
        return GuardReport(
            count,
            self.unknown / max(self.tokens, 1),
            self.nll / self.scored if self.scored else float("nan"),
            self.impossible / count,
            sum(d.usable for d in self.drawn) / count,
            sum(bool(d.errors.min() < d.errors[0]) for d in self.drawn) / count,
            greedy,
            oracle,
            greedy - oracle,
            **asdict(config),
        )


def check(report: GuardReport, config: SequenceConfig) -> None:
    """Refuse what cannot be trained on; log the rest.

    Raises:
        DataError: more unknown tokens, nats per token or references that do not fit than allowed, or no
            usable utterance (fewer than ``min_usable``).
    """
    limits, seen = config.guards, f"{report.utterances} training utterances"
    if report.unk_rate > limits.max_unk_rate:
        raise DataError(
            f"{100 * report.unk_rate:.1f} % of the reference tokens of {seen} are <unk>, at most "
            f"{100 * limits.max_unk_rate:g} % expected: is the transcript in another case or script than "
            "the token list? (sequence_conf.guards.max_unk_rate)"
        )
    if report.impossible > limits.max_impossible:
        raise DataError(
            f"{100 * report.impossible:.1f} % of the references of {seen} have more tokens than frames "
            f"can hold, at most {100 * limits.max_impossible:g} % expected: use longer tokens, or leave "
            "these utterances out (sequence_conf.guards.max_impossible)"
        )
    if not report.nll_per_token <= limits.max_nll:
        raise DataError(
            f"-log P(reference) is {report.nll_per_token:.2f} nats per token over {seen}, at most "
            f"{limits.max_nll:g} expected of a trained model: were its parameters loaded (--init_param), "
            "and was it trained on these targets? (sequence_conf.guards.max_nll; an early checkpoint may "
            "need more)"
        )
    if not report.usable or report.usable < limits.min_usable:
        raise DataError(
            f"{100 * report.usable:.2f} % of {seen} have candidates that differ in errors, more than 0 "
            f"and at least {100 * limits.min_usable:g} % expected: there is no reward to follow; use an "
            "earlier checkpoint, larger lists or harder utterances (sequence_conf.guards.min_usable)"
        )
    logging.info(
        "before training, %s: <unk> %.2f %%, %.3f nats per reference token, %.2f %% impossible, usable "
        "reward %.1f %%, better than greedy %.1f %%, greedy WER %.2f %%, oracle %.2f %%, gap %.2f points "
        "(G = %d of %d paths, nbest_scale %g, output_beam %s)",
        seen, 100 * report.unk_rate, report.nll_per_token, 100 * report.impossible, 100 * report.usable,
        100 * report.better, 100 * report.greedy, 100 * report.oracle, 100 * report.gap, report.size,
        report.num_paths, report.nbest_scale, report.output_beam,
    )  # fmt: skip
    if report.usable < FEW:
        logging.warning("only %.2f %% of the utterances carry a reward", 100 * report.usable)
    if report.nbest_scale != 1:
        logging.warning(
            "candidates are drawn at nbest_scale %g, not from the model itself", report.nbest_scale
        )
