"""Examples follow their rule and show both sides."""

import numpy as np

from espnet_latentasr.analysis.corrections import corrections

UTTS = ["b", "a", "c", "d", "e"]
TEXTS = tuple([f"{side} {utt}" for utt in UTTS] for side in ("ref", "frozen", "latent"))


def run(frozen, latent, lengths, count=5):
    best, worst = corrections(
        UTTS, TEXTS, (np.array(frozen), np.array(latent)), np.array(lengths), np.arange(5), count
    )
    return [(e.utt, e.saved) for e in best], [(e.utt, e.saved) for e in worst], best


def test_most_saved_first_then_the_larger_share_then_the_id():
    best, worst, examples = run([3, 3, 4, 1, 0], [1, 1, 0, 2, 4], [8, 8, 4, 5, 5])
    assert best == [("c", 4), ("a", 2), ("b", 2)]
    assert worst == [("e", -4), ("d", -1)]
    assert (examples[0].reference, examples[0].frozen, examples[0].latent) == (
        "ref c",
        "frozen c",
        "latent c",
    )
    assert (examples[0].length, examples[0].steps) == (4, 2)
    best, *_ = run([3, 3, 4, 1, 0], [1, 1, 2, 2, 4], [8, 4, 8, 5, 5], count=2)
    assert best == [("a", 2), ("b", 2)]


def test_equal_errors_are_no_example():
    assert run([1] * 5, [1] * 5, [3] * 5)[:2] == ([], [])
