"""Candidate lists: exact scores by a plain forward, merging of equal texts, greedy first, loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.config import PromptConfig
from espnet_latentasr.decode import nbest as nbest_module
from espnet_latentasr.decode.internal_lm import InternalLM, check_tokens, internal_lms
from espnet_latentasr.decode.nbest import (
    Given,
    NbestConfig,
    longest_repetition,
    nbest_lists,
    sequence_scores,
)
from espnet_latentasr.decode.sampling import SamplingRule, draw_seed, sample
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import Meta
from espnet_latentasr.text.normalize import Normalizer, get_normalizer

CAP = 6
UTTS = ("utt0", "utt1", "utt2", "utt3")
META = Meta("ar-sample", 9, "none", "tiny", seed=0)
# Many texts for one: how candidates with several token sequences come about in a random model.
VOWELS = Normalizer("vowels", "1", lambda text: "".join(c for c in text.lower() if c in "aeiou")[:2])


@pytest.fixture(scope="module")
def state(tiny_backbone, tiny_prompt, clips):
    encoded = tiny_backbone.encode(clips[: len(UTTS)])
    return tiny_backbone.prefill(encoded, [tiny_prompt] * len(UTTS))


def make(backbone, state, normalizer=None, given=(), **options):
    config = NbestConfig(**({"samples": 8, "beam": 3} | options))
    normalizer = normalizer or get_normalizer("none")
    refs = dict.fromkeys(UTTS, "turn on the light")
    return nbest_lists(backbone, state, UTTS, [CAP] * len(UTTS), config, META, normalizer, refs, given)


@pytest.fixture(scope="module")
def exact(tiny_backbone, tiny_prompt, clips, full_forward):
    """(row, tokens) -> log P(tokens, then an end token) by one forward without cache."""

    encoded = [tiny_backbone.encode([clip]).audio[0] for clip in clips[: len(UTTS)]]

    @torch.no_grad()
    def score(row, tokens, prompt=tiny_prompt, audio=True):
        embed = tiny_backbone.embed
        heard = encoded[row][: None if audio else 0]
        before, after = torch.tensor(prompt.before), torch.tensor(prompt.after)
        embeds = torch.cat([embed(before), heard, embed(after), embed(torch.tensor(tokens).long())])
        hidden = full_forward(embeds, range(len(embeds)))[-len(tokens) - 1 :]
        logp = (hidden @ tiny_backbone.embedding_table.T).log_softmax(-1)
        total = sum(float(logp[i, token]) for i, token in enumerate(tokens))
        return total + float(logp[-1, list(tiny_backbone.end_ids)].logsumexp(0))

    return score


# Scores


def test_sequence_scores_are_those_of_a_plain_forward(tiny_backbone, state, exact, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [0, 2, 2, 1, 3, 0, 0]
    sequences = [tuple(rng.integers(0, 250, size=n).tolist()) for n in (3, 0, 7, 1, 4, 12, 2)]
    expected = [exact(row, tokens) for row, tokens in zip(rows, sequences)]
    found = sequence_scores(tiny_backbone, state, rows, sequences)
    assert found == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr(nbest_module, "MAX_POSITIONS", 10)
    assert sequence_scores(tiny_backbone, state, rows, sequences, 2) == pytest.approx(found, abs=1e-3)


def drawn(backbone, state, count, seed=0, rule=None) -> list[list[tuple[int, ...]]]:
    """Token sequences of the samples that ``make`` draws."""
    seeds = [[draw_seed(seed, utt_id, i) for i in range(count)] for utt_id in UTTS]
    groups = sample(backbone, state, [CAP] * len(UTTS), seeds, rule or SamplingRule())
    return [[h.tokens for h in group] for group in groups]


@pytest.mark.parametrize("normalizer", [get_normalizer("none"), VOWELS])
def test_texts_that_are_alike_are_one_candidate_with_their_common_probability(
    tiny_backbone, state, exact, normalizer
):
    lists = make(tiny_backbone, state, normalizer, samples=20, beam=0)
    best = greedy(tiny_backbone, state, [CAP] * len(UTTS))
    several = 0
    for row, (nbest, samples) in enumerate(zip(lists, drawn(tiny_backbone, state, 20))):
        groups: dict[str, set] = {}
        for tokens in [best[row].tokens, *samples]:
            text = normalizer(tiny_backbone.text.detokenize(tokens))
            groups.setdefault(text, set()).add(tokens)
        assert set(nbest.texts) == set(groups) and len(nbest) == len(groups)
        for candidate in nbest.hyps:
            scores = {tokens: exact(row, tokens) for tokens in groups[candidate.text]}
            assert candidate.am_logp == pytest.approx(np.logaddexp.reduce([*scores.values()]), abs=1e-3)
            assert candidate.path_logp == pytest.approx(max(scores.values()), abs=1e-3)
            assert candidate.extra["variants"] == len(scores)
            assert candidate.extra["samples"] == sum(t in scores for t in samples)
            expected = best[row].tokens if candidate is nbest.hyps[0] else max(scores, key=scores.get)
            assert candidate.tokens == expected
            several += len(scores) > 1
    assert several > 10 or normalizer is not VOWELS, "a weak subject"


# The list


def test_greedy_is_first_and_the_others_follow_by_probability(tiny_backbone, state):
    best = greedy(tiny_backbone, state, [CAP] * len(UTTS))
    lists = make(tiny_backbone, state, VOWELS)
    for nbest, cut, hypothesis in zip(lists, make(tiny_backbone, state, VOWELS, size=3), best):
        first, *others = nbest.hyps
        assert first.tokens == hypothesis.tokens and "greedy" in first.extra["from"]
        assert first.surface == tiny_backbone.text.detokenize(hypothesis.tokens)
        assert [c.am_logp for c in others] == sorted((c.am_logp for c in others), reverse=True)
        assert len({c.text for c in nbest.hyps}) == len(nbest) > 3
        assert nbest.ref == "turn on the light"
        assert cut.hyps == nbest.hyps[:3]


def test_counts_are_those_of_the_samples_alone(tiny_backbone, state):
    config = {"samples": 25, "beam": 4, "sampling": SamplingRule(0.05), "seed": 3}
    lists = make(tiny_backbone, state, **config)
    unsampled = 0
    for nbest, samples in zip(lists, drawn(tiny_backbone, state, 25, 3, SamplingRule(0.05))):
        assert sum(c.extra["samples"] for c in nbest.hyps) == 25
        for candidate in nbest.hyps:
            count = sum(tiny_backbone.text.detokenize(t) == candidate.surface for t in samples)
            assert candidate.extra["samples"] == count and candidate.count == count
            assert ("sample" in candidate.extra["from"]) == (count > 0)
            unsampled += count == 0
    assert unsampled > 0


def test_lists_do_not_depend_on_batch_or_rows(tiny_backbone, state):
    together = make(tiny_backbone, state)
    few = make(tiny_backbone, state, max_rows=5)
    assert [n.texts for n in few] == [n.texts for n in together]
    alone = tiny_backbone.fork(state, torch.tensor([2]))
    (found,) = nbest_lists(
        tiny_backbone, alone, ["utt2"], [CAP], NbestConfig(8, beam=3), META, get_normalizer("none")
    )
    assert found.texts == together[2].texts
    scores = [c.am_logp for c in found.hyps]
    assert scores == pytest.approx([c.am_logp for c in together[2].hyps], abs=1e-3)


def test_given_sequences_are_taken_in_and_scored_here(tiny_backbone, state, exact):
    best = greedy(tiny_backbone, state, [CAP] * len(UTTS))
    other = (5, 6, 7)
    given = [[Given(best[0].tokens, 0), Given(other, 2), Given(other, 1)], [], [Given(other)], []]
    lists = make(tiny_backbone, state, given=given)
    assert lists[0].hyps[0].depth == 0 and {"greedy", "depth"} <= set(lists[0].hyps[0].extra["from"])
    (taken,) = [c for c in lists[0].hyps if c.tokens == other]
    assert taken.depth == 1 and taken.extra["from"] == ["depth"] and taken.count == 0
    assert taken.am_logp == pytest.approx(exact(0, other), abs=1e-3)
    assert [c.depth for c in lists[2].hyps if c.tokens == other] == [None]
    plain = make(tiny_backbone, state)
    assert [len(a) - len(b) for a, b in zip(lists, plain)] == [1, 0, 1, 0]


def test_capped_and_looping_candidates_are_flagged(tiny_backbone, state):
    loop = (8, 9) * 10
    (nbest, *_) = make(tiny_backbone, state, given=[[Given(loop)], [], [], []])
    flags = {c.tokens: (c.extra["capped"], c.extra["looping"]) for c in nbest.hyps}
    assert flags[loop] == (False, True)
    assert {capped for tokens, (capped, _) in flags.items() if len(tokens) < CAP} == {False}
    assert any(capped for capped, _ in flags.values())


def test_impossible_configurations_are_refused():
    for bad, message in [
        ({"samples": 0}, "alone"),
        ({"samples": 0, "beam": 2, "sampling": SamplingRule(0.5)}, "without effect"),
        ({"beam": 65}, "max_rows"),
        ({"size": 0}, "size"),
        ({"samples": -1}, "samples"),
        ({"loop_repeats": 1}, "loop_repeats"),
    ]:
        with pytest.raises(ConfigError, match=message):
            NbestConfig(**bad)


# Loops


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], 0),
        ([1], 1),
        ([1, 2, 3], 1),
        ([1, 1], 2),
        ([5, 1, 2, 1, 2, 1, 2, 7], 3),
        ([1, 2, 1, 2, 1], 2),
        ([3, 3, 3, 9, 3, 3], 3),
        ([1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2], 4),
    ],
)
def test_repetitions(tokens, expected):
    assert longest_repetition(tokens) == expected


def slow_repetition(tokens, max_period):
    most = min(len(tokens), 1)
    for start in range(len(tokens)):
        for period in range(1, max_period + 1):
            unit, times = tokens[start : start + period], 1
            while len(unit) == period and tokens[start + times * period :][:period] == unit:
                times += 1
            most = max(most, times)
    return most


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2), max_size=14), st.integers(1, 5))
def test_repetitions_equal_counting_them(tokens, max_period):
    assert longest_repetition(tokens, max_period) == slow_repetition(tokens, max_period)


# The recogniser's own language model


def test_the_internal_lm_hears_nothing(tiny_backbone, tiny_prompt, exact):
    scorer = InternalLM(tiny_backbone, tiny_prompt, max_rows=2)
    sequences = [(5, 6, 7), (), (100, 3), (8, 9, 10, 11)]
    texts = {" ".join(map(str, tokens)): "utt" for tokens in sequences}
    expected = [exact(0, tokens, audio=False) for tokens in sequences]
    assert list(scorer.score(texts).values()) == pytest.approx(expected, abs=1e-3)
    heard = [exact(0, tokens) for tokens in sequences]
    assert max(abs(a - b) for a, b in zip(expected, heard)) > 0.1
    with pytest.raises(DataError, match="utterance 'utt9'.*another recogniser"):
        scorer.score({"5 100000": "utt9"})


def test_one_internal_lm_per_language_also_where_lines_are_written(tiny_backbone):
    languages = {"a": "en", "b": "de", "c": "English"}
    found = internal_lms(tiny_backbone, languages, PromptConfig(language="auto"))
    assert found["a"] is found["c"] is not found["b"]
    expected = tiny_backbone.text.prompt("de", PromptConfig())
    assert found["b"].identity["prompt_ids"] == [*expected.before, *expected.after]
    assert "language German" in found["b"].identity["prompt"][1]


def test_tokens_that_do_not_write_the_text_are_refused(tiny_backbone):
    tokens = tiny_backbone.text.tokenize("call ann")
    check_tokens(tiny_backbone, "utt1", "call ann", tokens)
    with pytest.raises(DataError, match="utterance 'utt1': its tokens write 'call ann'"):
        check_tokens(tiny_backbone, "utt1", "call jan", tokens)


def test_the_probability_of_all_short_texts_is_at_most_one(tiny_backbone, state):
    rows = [0] * 301
    scores = sequence_scores(tiny_backbone, state, rows, [(), *((t,) for t in range(300))])
    assert 0 < sum(map(math.exp, scores)) < 1
