"""Skipped and processed utterances at the chosen and at full depth."""

import numpy as np
import pytest

from espnet_latentasr.analysis.counterfactual import counterfactual
from espnet_latentasr.stats.bootstrap import paired_bootstrap

ERRORS = np.array([[1, 1, 3], [2, 1, 0], [2, 0, 4], [0, 0, 0]])
LENGTHS = np.array([5, 4, 4, 7])


def test_groups_by_hand():
    skipped, processed = counterfactual(
        ERRORS, LENGTHS, np.array([0, 1, 1, 0]), np.array([True, False, False, True])
    )
    assert (skipped.name, skipped.utterances, skipped.tokens, skipped.baseline) == (
        "skipped",
        2,
        12,
        1 / 12,
    )
    assert (skipped.actual.delta, skipped.forced.delta) == (0.0, pytest.approx(2 / 12))
    assert (processed.actual.delta, processed.forced.delta) == (pytest.approx(-3 / 8), 0.0)
    assert (processed.actual.better, processed.forced.worse) == (2, 1)
    assert processed.forced == paired_bootstrap(ERRORS[1:3, 0], ERRORS[1:3, 2], LENGTHS[1:3])


def test_a_processed_utterance_may_end_without_latents():
    _, processed = counterfactual(ERRORS, LENGTHS, np.zeros(4, dtype=int), np.zeros(4, dtype=bool))
    assert (processed.utterances, processed.actual.delta) == (4, 0.0)


def test_an_empty_group_has_no_difference():
    skipped, _ = counterfactual(ERRORS, LENGTHS, np.ones(4, dtype=int), np.zeros(4, dtype=bool))
    assert (skipped.utterances, skipped.actual, skipped.forced) == (0, None, None)


def test_a_skipped_utterance_has_no_latents():
    with pytest.raises(ValueError, match="has depth 0"):
        counterfactual(ERRORS, LENGTHS, np.ones(4, dtype=int), np.ones(4, dtype=bool))
