"""The alignment against hand-made cases, the sclite binary, jiwer and its own laws."""

import json
import random
import time
from dataclasses import astuple
from functools import cache

import jiwer
import pytest
import rapidfuzz.distance
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.text.edit_distance import (
    DELETION,
    INSERTION,
    SUBSTITUTION,
    Alignment,
    Counts,
    align,
)

tokens = st.lists(st.sampled_from("abc"), max_size=7)


def counts(reference, hypothesis):
    return astuple(align(reference, hypothesis).counts)


def cost(reference, hypothesis):
    _, s, d, i = counts(reference, hypothesis)
    return SUBSTITUTION * s + DELETION * d + INSERTION * i


@pytest.mark.parametrize(
    ("ref", "hyp", "operations"),
    [
        ("", "", ""),
        ("", "a b", "II"),
        ("a b", "", "DD"),
        ("a b c", "a b c", "CCC"),
        ("a b c", "a x c", "CSC"),
        ("the cat sat on the mat", "the cat sit on mat today", "CCSCDCI"),
        # Swapped words: delete and insert (cost 6) beat two substitutions (8).
        ("a b", "b a", "DCI"),
        # Three substitutions tie with D D C I I (both 12): the walk from the end goes diagonally.
        ("a b c", "c x y", "SSS"),
        # Of two equal words the later one is matched.
        ("a", "a a", "IC"),
        ("a a", "a", "DC"),
        # A substitution and an insertion, in this order from the end.
        ("a", "x y", "IS"),
        ("x y", "a", "DS"),
    ],
)
def test_hand_computed(ref, hyp, operations):
    alignment = align(ref.split(), hyp.split())
    assert alignment.operations == operations
    assert alignment == Alignment(tuple(ref.split()), tuple(hyp.split()), operations)


def test_columns_pair_the_tokens():
    assert list(align(["a", "b", "c"], ["b", "x", "d"]).columns()) == [
        ("D", "a", None),
        ("C", "b", "b"),
        ("I", None, "x"),
        ("S", "c", "d"),
    ]


def test_case_matters():
    assert counts(["The"], ["the"]) == (0, 1, 0, 0)


def test_counts_add_and_measure():
    pooled = Counts(3, 1, 0, 2) + Counts(1, 0, 4, 0)
    assert pooled == Counts(4, 1, 4, 2)
    assert (pooled.reference_length, pooled.errors) == (9, 7)


def test_golden_counts_of_the_binary(golden):
    rows = json.loads((golden / "sclite_counts.json").read_text(encoding="utf-8"))
    assert len(rows) > 190
    for row in rows:
        assert list(counts(row["ref"].split(), row["hyp"].split())) == row["CSDI"], row


def test_same_counts_as_the_binary_on_random_pairs(sclite):
    rng = random.Random(5)
    words = list(sclite.VOCABULARY.values())
    pairs = [sclite.random_pair(rng, rng.choice(words), rng.randint(0, 18)) for _ in range(2000)]
    pairs.append(sclite.random_pair(rng, sclite.VOCABULARY["thai_characters"], 1000))
    assert [counts(*pair) for pair in pairs] == sclite.sclite_counts(pairs)


def plainly(reference, hypothesis):
    """The definition: the whole table of costs, cell by cell, and the walk over it."""
    n, m = len(reference), len(hypothesis)
    cost = [[DELETION * i + INSERTION * j for j in range(m + 1)] for i in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            pair = SUBSTITUTION * (reference[i - 1] != hypothesis[j - 1])
            cost[i][j] = min(
                cost[i - 1][j - 1] + pair, cost[i][j - 1] + INSERTION, cost[i - 1][j] + DELETION
            )
    i, j, operations = n, m, ""
    while i or j:
        pair = SUBSTITUTION * (i > 0 and j > 0 and reference[i - 1] != hypothesis[j - 1])
        if i and j and cost[i][j] == cost[i - 1][j - 1] + pair:
            operations += "S" if pair else "C"
            i, j = i - 1, j - 1
        elif j and cost[i][j] == cost[i][j - 1] + INSERTION:
            operations += "I"
            j -= 1
        else:
            operations += "D"
            i -= 1
    return operations[::-1]


def test_same_operations_as_the_plain_table_on_random_pairs(oracle):
    rng = random.Random(9)
    for words in oracle.VOCABULARY.values():
        for _ in range(170):
            ref, hyp = oracle.random_pair(rng, words, rng.randint(0, 14))
            if rng.random() < 0.5:  # few errors: long equal beginnings and endings
                hyp = [w if rng.random() < 0.9 else rng.choice(words) for w in ref]
                hyp = [w for w in hyp for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 1, 2]))]
            assert align(ref, hyp).operations == plainly(ref, hyp), (ref, hyp)


@settings(max_examples=100)
@given(tokens, tokens, tokens, tokens)
def test_same_operations_as_the_plain_table(beginning, ref, hyp, ending):
    ref, hyp = beginning + ref + ending, beginning + hyp + ending
    assert align(ref, hyp).operations == plainly(ref, hyp)


@settings(max_examples=100)
@given(st.lists(st.characters(), max_size=8), st.lists(st.characters(), max_size=8))
def test_cost_of_rapidfuzz_on_any_characters(ref, hyp):
    weights = (INSERTION, DELETION, SUBSTITUTION)
    assert cost(ref, hyp) == rapidfuzz.distance.Levenshtein.distance(ref, hyp, weights=weights)


def test_totals_of_jiwer_where_errors_are_few():
    rng = random.Random(6)
    refs, hyps = [], []
    for _ in range(300):
        words = [f"w{rng.randint(0, 500)}" for _ in range(rng.randint(1, 20))]
        refs.append(words)
        hyps.append([f"x{w}" if rng.random() < 0.05 else w for w in words if rng.random() > 0.04])
    ours = sum((align(r, h).counts for r, h in zip(refs, hyps, strict=True)), start=Counts())
    theirs = jiwer.process_words([" ".join(r) for r in refs], [" ".join(h) for h in hyps])
    assert ours.errors == theirs.substitutions + theirs.deletions + theirs.insertions
    assert ours.reference_length == theirs.hits + theirs.substitutions + theirs.deletions


@given(tokens, tokens)
def test_lengths_add_up(ref, hyp):
    c, s, d, i = counts(ref, hyp)
    assert c + s + d == len(ref)
    assert c + s + i == len(hyp)


@given(tokens, tokens)
def test_cost_is_the_least(ref, hyp):
    @cache
    def least(i, j):
        if not i or not j:
            return DELETION * i + INSERTION * j
        return min(
            least(i - 1, j - 1) + SUBSTITUTION * (ref[i - 1] != hyp[j - 1]),
            least(i - 1, j) + DELETION,
            least(i, j - 1) + INSERTION,
        )

    assert cost(ref, hyp) == least(len(ref), len(hyp))


@given(tokens, tokens)
def test_never_fewer_errors_than_levenshtein(ref, hyp):
    if ref:
        measures = jiwer.process_words(" ".join(ref), " ".join(hyp))
        least = measures.substitutions + measures.deletions + measures.insertions
        assert align(ref, hyp).counts.errors >= least


@given(tokens, tokens)
def test_swapping_sides_swaps_insertions_and_deletions(ref, hyp):
    # Ties may split the same cost differently, so only cost and I - D are symmetric.
    _, _, d, i = counts(ref, hyp)
    _, _, swapped_d, swapped_i = counts(hyp, ref)
    assert cost(ref, hyp) == cost(hyp, ref)
    assert i - d == swapped_d - swapped_i


@given(tokens, tokens, tokens)
def test_cost_is_a_metric(a, b, c):
    assert (cost(a, b) == 0) == (a == b)
    assert cost(a, c) <= cost(a, b) + cost(b, c)


@given(tokens, tokens, tokens)
def test_a_common_ending_is_matched(ref, hyp, ending):
    assert align(ref + ending, hyp + ending).operations == (
        align(ref, hyp).operations + "C" * len(ending)
    )


def test_speed():
    rng = random.Random(7)
    words = [f"w{i}" for i in range(100)]
    pairs = [([rng.choice(words) for _ in range(10)],) * 2 for _ in range(1000)]
    long = [rng.choice("abcdefgh") for _ in range(2000)]
    start = time.process_time()
    for ref, hyp in pairs:
        align(ref, hyp[1:] + ["x"])
    align(long, long[100:])
    # 0.2 s on one slow core; the bound only catches an accidental loop over cells.
    assert time.process_time() - start < 2
