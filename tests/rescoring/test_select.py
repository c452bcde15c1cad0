"""Posterior, losses and rules against hand-computed lists and slow references."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.config import load_yaml
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.config import ScoreNames, load_rescore_config, rescore_config
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest
from espnet_latentasr.rescoring.posterior import Terms, median_spread, softmax, spread, term
from espnet_latentasr.rescoring.risk import PairwiseLosses, edit_distances, expected_loss, neg_bleu
from espnet_latentasr.rescoring.select import Shared, prepare, select, set_unit

META = Meta("sys", 9, "none", "m")


def make(*rows, utt="u"):
    """Rows are (text, am_logp, scores) or a text alone."""
    hyps = []
    for row in rows:
        text, am, scores = (row, -1.0, {}) if isinstance(row, str) else row
        hyps.append(Candidate(text, text, tuple(map(ord, text)), am, scores=scores))
    return NBest(utt, META, tuple(hyps))


def rule(**keys):
    return rescore_config(keys)


def levenshtein(a, b):
    table = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, table[0] = table[0], i
        for j, y in enumerate(b, 1):
            last, table[j] = table[j], min(last + (x != y), table[j] + 1, table[j - 1] + 1)
    return table[-1]


texts = st.lists(st.text("ab ", max_size=7).map(lambda t: " ".join(t.split())), min_size=1, max_size=6)
UNIT = {
    "cer": str,
    "cer_nospace": lambda t: t.replace(" ", ""),
    "wer": str.split,
    "token": lambda t: tuple(map(ord, t)),
}


@settings(max_examples=30)
@given(texts)
def test_losses_equal_the_slow_distance(drawn):
    losses = PairwiseLosses(make(*drawn))
    for loss, units in UNIT.items():
        for denominator in ("max", "ref", "none"):
            found = losses(loss, denominator)
            for i, a in enumerate(map(units, drawn)):
                for j, b in enumerate(map(units, drawn)):
                    longest = {"max": max(len(a), len(b)), "ref": len(b), "none": 1}[denominator]
                    assert found[i, j] == pytest.approx(levenshtein(a, b) / max(longest, 1))


def test_words_are_compared_not_their_letters():
    assert edit_distances([["a", "bc"], ["a", "b"], ["bc"], []]).tolist() == [
        [0, 1, 1, 2],
        [1, 0, 2, 2],
        [1, 2, 0, 1],
        [2, 2, 1, 0],
    ]


def test_distances_are_computed_once(monkeypatch):
    calls = []
    from espnet_latentasr.rescoring import risk

    original = risk.edit_distances
    monkeypatch.setattr(risk, "edit_distances", lambda s: calls.append(1) or original(s))
    nbest = make(*((t, -1.0, {"pll": -float(i)}) for i, t in enumerate(["a", "ab", "b"])))
    shared = Shared(nbest)
    for tau in (0.5, 1, 10, math.inf):
        for denominator in ("max", "ref"):
            select(nbest, rule(posterior={"tau": tau}, denominator=denominator), shared)
    assert len(calls) == 1


def test_bleu_by_hand():
    # Hypothesis "a b c d" against "a b c e f": precisions 3/4, (2+1)/(3+1), (1+1)/(2+1), (0+1)/(1+1).
    one = (3 / 4 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25 * math.exp(1 - 5 / 4)
    other = (3 / 5 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    sentences = [s.split() for s in ("a b c d", "a b c e f", "x y", "", "")]
    found = neg_bleu(sentences)
    assert found[0, 1] == found[1, 0] == pytest.approx(1 - (one + other) / 2)
    assert found[0, 2] == found[0, 3] == found[3, 0] == 1
    assert np.diag(found) == pytest.approx(np.zeros(5)) and found[3, 4] == 0


def test_bleu_clips_repeated_words():
    # "a a" against "a": 1/2 and (0+1)/(1+1), order 3 and 4 have nothing to count: 1.
    one = (1 / 2 * 1 / 2) ** 0.25
    other = math.exp(1 - 2)
    assert neg_bleu([["a", "a"], ["a"]])[0, 1] == pytest.approx(1 - (one + other) / 2)


def test_bleu_equals_nltk():
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    smooth = bleu_score.SmoothingFunction().method2
    rng = np.random.default_rng(0)
    sentences = [list(rng.choice(list("abcde"), n)) for n in (4, 6, 9, 12)]

    def bleu(hypothesis, reference):
        return bleu_score.sentence_bleu([reference], hypothesis, smoothing_function=smooth)

    wanted = [[1 - (bleu(a, b) + bleu(b, a)) / 2 for b in sentences] for a in sentences]
    assert neg_bleu(sentences) == pytest.approx(np.array(wanted))


def test_softmax_by_hand_and_at_its_ends():
    scores = np.array([-1000.0, -1002.0, -np.inf])
    assert softmax(scores, 2.0) == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0])
    assert softmax(scores, math.inf).tolist() == [0.5, 0.5, 0]
    assert softmax(scores, 1e-300).tolist() == [1, 0, 0]
    assert softmax(np.array([-np.inf]), 1.0).tolist() == [0]


def test_spread():
    assert spread(np.array([1.0, 3.0, -np.inf])) == 1.0 and spread(np.array([4.0])) == 0.0
    assert median_spread([0.0, 2.0, 4.0, 9.0]) == 4.0
    with pytest.raises(DataError, match="median_sd"):
        median_spread([0.0])


def scored(*rows):
    """Rows are (text, am_logp, pll, ll)."""
    return make(*((t, am, {"pll": pll, "ll": ll}) for t, am, pll, ll in rows))


LIST = scored(("the cat", -1.0, -9.0, -8.0), ("the bat", -2.0, -6.0, -7.0), ("a bat", -3.0, -7.0, -5.0))


def test_log_linear_score_by_hand():
    config = rule(kind="argmax", score={"am": 1.0, "pll": 0.5, "ll": 0.25, "ilm": -0.5})
    ilm = [replace(c, scores={**c.scores, "ilm": -2.0 * i}) for i, c in enumerate(LIST.hyps)]
    nbest = replace(LIST, hyps=tuple(ilm))
    found = select(nbest, config)
    assert -found.criterion == pytest.approx([-7.5, -2 - 3 - 1.75 + 1, -3 - 3.5 - 1.25 + 2])
    # -7.5, -5.75, -5.75: the tie goes to the lower index.
    assert found.index == 1


@pytest.mark.parametrize(("alpha", "wanted"), [(1.0, 0), (0.9, 0), (0.75, 0), (0.7, 1), (0.0, 1)])
def test_interpolation(alpha, wanted):
    # alpha am + (1 - alpha) PLL is -3, -3, -4 at alpha = 0.75: greedy wins the tie.
    assert select(LIST, rule(kind="argmax", score={"am": alpha, "pll": 1 - alpha})).index == wanted


def test_length_normalisation():
    nbest = make(("a", -2.0, {}), ("a b c", -3.0, {}), ("", -1.5, {}))
    for length, wanted in [("none", 2), ("tokens", 1), ("characters", 1)]:
        assert select(nbest, rule(kind="argmax", score={"am": 1}, length=length)).index == wanted
    found = select(nbest, rule(kind="argmax", score={"am": 1}, length="tokens"))
    assert -found.criterion == pytest.approx([-2, -3 / 5, -1.5])


def test_mbr_by_hand():
    # PLL / 1 is (-9, -6, -7): Q = (e^-3, 1, e^-1) / Z.  Word distances 0 1 2 / 1 0 1 / 2 1 0.
    z = math.exp(-3) + 1 + math.exp(-1)
    q = np.array([math.exp(-3), 1, math.exp(-1)]) / z
    found = select(LIST, rule(loss="wer", denominator="none", posterior={"tau": 1}))
    assert found.weights == pytest.approx(q)
    wanted = [q[1] + 2 * q[2], q[0] + q[2], 2 * q[0] + q[1]]
    assert found.criterion == pytest.approx(wanted) and found.index == 1


def slow_mbr(nbest, weights, units, denominator):
    risks = []
    for a in map(units, nbest.texts):
        total = 0.0
        for w, b in zip(weights, map(units, nbest.texts)):
            longest = {"max": max(len(a), len(b)), "ref": len(b), "none": 1}[denominator]
            total += w * levenshtein(a, b) / max(longest, 1)
        risks.append(total)
    return risks


lists = st.lists(
    st.tuples(st.text("ab ", min_size=1, max_size=6).map(lambda t: " ".join(t.split()) or "a"),
              st.floats(-30, -1), st.floats(-30, -1)),
    min_size=1, max_size=6,
)  # fmt: skip


def build(drawn):
    return make(*((t, am, {"pll": pll}) for t, am, pll in drawn))


@settings(max_examples=20)
@given(lists, st.sampled_from([0.5, 3.0, 10.0, math.inf]))
def test_mbr_equals_the_slow_reference(drawn, tau):
    nbest = build(drawn)
    weights = softmax(np.array([0.3 * am + pll for _, am, pll in drawn]), tau)
    for loss, units in UNIT.items():
        for denominator in ("max", "ref", "none"):
            config = rule(
                score={"am": 0.3, "pll": 1}, posterior={"tau": tau}, loss=loss, denominator=denominator
            )
            found = select(nbest, config)
            wanted = slow_mbr(nbest, weights, units, denominator)
            assert found.criterion == pytest.approx(wanted, abs=1e-12)
            assert found.index == next(i for i, r in enumerate(wanted) if r <= min(wanted) + 1e-9)


@settings(max_examples=20)
@given(lists)
def test_mbr_under_bleu_sums_the_pairwise_losses(drawn):
    nbest = build(drawn)
    weights = softmax(np.array([pll for _, _, pll in drawn]), 3.0)
    pairs = neg_bleu([t.split() for t in nbest.texts])
    wanted = [sum(w * loss for w, loss in zip(weights, row)) for row in pairs]
    found = select(nbest, rule(loss="neg_bleu", posterior={"tau": 3}))
    assert found.criterion == pytest.approx(wanted, abs=1e-12)
    assert wanted[found.index] == pytest.approx(min(wanted), abs=1e-9)


@settings(max_examples=30)
@given(lists, st.randoms(use_true_random=False), st.floats(-50, 50))
def test_constants_and_order_change_nothing(drawn, random, constant):
    drawn = list({t: (t, am, pll) for t, am, pll in drawn}.values())
    config = rule(posterior={"tau": 3})
    nbest = build(drawn)
    found = select(nbest, config)
    shifted = build([(t, am, pll + constant) for t, am, pll in drawn])
    assert select(shifted, config).index == found.index
    risks = np.sort(found.criterion)
    if len(risks) == 1 or risks[1] - risks[0] > 1e-6:
        mixed = drawn[:]
        random.shuffle(mixed)
        again = build(mixed)
        assert again.texts[select(again, config).index] == nbest.texts[found.index]


@settings(max_examples=30)
@given(lists, st.integers(2, 4))
def test_a_candidate_split_into_copies_keeps_its_vote(drawn, copies):
    drawn = list({t: (t, am, pll) for t, am, pll in drawn}.values())
    nbest, config = build(drawn), rule(posterior={"tau": 3}, dedup=False)
    found = select(nbest, config)
    text, am, pll = drawn[-1]
    # softmax(pll / 3) of a copy must be 1 / copies of the whole.
    split = [*drawn[:-1], *[(text, am, pll - 3 * math.log(copies))] * copies]
    again = build(split)
    risks = np.sort(found.criterion)
    if len(risks) == 1 or risks[1] - risks[0] > 1e-6:
        assert again.texts[select(again, config).index] == nbest.texts[found.index]


@settings(max_examples=30)
@given(lists)
def test_limits_of_tau(drawn):
    drawn = list({t: (t, am, pll) for t, am, pll in drawn}.values())
    nbest = build(drawn)
    best = max(pll for _, _, pll in drawn)
    cold = select(nbest, rule(posterior={"tau": 1e-9}))
    near = sorted(pll for _, _, pll in drawn)
    if len(near) == 1 or near[-1] - near[-2] > 1e-6:
        assert drawn[cold.index][2] == best
    hot = select(nbest, rule(posterior={"tau": math.inf}))
    uniform = select(nbest, rule(posterior={"kind": "uniform"}))
    medoid = PairwiseLosses(nbest)("cer").sum(1)
    assert hot.index == uniform.index and medoid[hot.index] == pytest.approx(medoid.min())


def test_one_candidate_and_identical_candidates_give_greedy():
    for config in (rule(), rule(dedup=False), rule(kind="argmax"), rule(kind="two_stage")):
        one = select(scored(("a", -1.0, -1.0, -1.0)), config)
        same = select(scored(*[("a", -1.0, -1.0, -1.0)] * 5), config)
        assert one.index == same.index == 0 and not one.fallback


def test_temperature_relative_to_the_spread():
    wide = scored(("a", -1.0, -10.0, 0.0), ("b", -1.0, -30.0, 0.0))
    narrow = scored(("a", -1.0, -10.0, 0.0), ("b", -1.0, -12.0, 0.0))
    by_list = rule(posterior={"tau": 2, "tau_unit": "list_sd"})
    first, second = (select(n, by_list).weights for n in (wide, narrow))
    # Standard deviations are 10 and 1; the difference is two of them either way.
    assert first == pytest.approx(softmax(np.array([0.0, -2.0]), 2.0)) and second == pytest.approx(first)
    by_set = rule(posterior={"tau": 2, "tau_unit": "median_sd"})
    unit = set_unit([wide, narrow, scored(("a", -1.0, 0.0, 0.0))], by_set)
    assert unit == pytest.approx(5.5)
    found = select(narrow, by_set, unit=unit).weights
    assert found == pytest.approx(softmax(np.array([0.0, -2.0]), 11.0))
    with pytest.raises(ValueError, match="median_sd needs"):
        select(narrow, by_set)
    equal = scored(("a", -1.0, -3.0, 0.0), ("b", -1.0, -3.0, 0.0))
    assert select(equal, by_list).weights.tolist() == [0.5, 0.5]
    assert set_unit([wide], rule()) is None


def test_two_stage_looks_among_the_lowest_risks_only():
    texts = {"aaaa": -9.0, "aaab": -5.0, "aabb": -4.0, "zzzzzz": -1.0}
    nbest = scored(*((text, -1.0, 0.0, ll) for text, ll in texts.items()))
    keys = {"kind": "two_stage", "posterior": {"tau": 10}, "second": {"ll": 1}}
    assert select(nbest, rule(**keys, keep=1)).index == select(nbest, rule(posterior={"tau": 10})).index
    assert select(nbest, rule(**keys, keep=3)).index == 2
    assert select(nbest, rule(**keys, keep=9)).index == 3


def test_counts_as_posterior():
    nbest = make("aa", "ab", "bb")
    nbest = replace(nbest, hyps=tuple(replace(c, count=n) for c, n in zip(nbest.hyps, (1, 1, 6))))
    found = select(nbest, rule(posterior={"kind": "counts"}))
    assert found.weights.tolist() == [0.125, 0.125, 0.75] and found.index == 2
    assert select(nbest, rule(posterior={"kind": "uniform"}, loss="cer")).index == 1


def test_counts_need_a_sample():
    nbest = make("aa", "ab")
    nbest = replace(nbest, hyps=tuple(replace(c, count=0) for c in nbest.hyps))
    with pytest.raises(DataError, match="utterance '.*no candidate was sampled"):
        select(nbest, rule(posterior={"kind": "counts"}))
    found = select(nbest, rule(posterior={"kind": "counts"}, candidates=1))
    assert found.index == 0 and found.weights.tolist() == [1], "one candidate needs no counts"


@pytest.mark.parametrize("kind", ["argmax", "mbr", "two_stage"])
def test_empty_texts_have_no_say_where_text_is_read(kind):
    # A language model's log-probability of nothing is 0 and would beat everything.
    rows = [("a b", -5.0, -9.0, -9.0), ("", -1.0, 0.0, 0.0), ("a c", -6.0, -7.0, -7.0)]
    found = select(scored(*rows), rule(kind=kind))
    assert found.index in (0, 2) and found.criterion[1] == np.inf
    assert found.weights is None or found.weights[1] == 0
    unscored = make(("", -1.0, {}), ("a", -2.0, {"pll": -3.0, "ll": -3.0}))
    assert select(unscored, rule(kind=kind)).index == 1, "an empty text needs no score"
    for nothing in (make("", "", ""), make("")):
        found = select(nothing, rule(kind=kind))
        assert found.index == 0 and found.fallback


def test_without_a_language_model_an_empty_text_is_a_candidate():
    nbest = make(("a b", -5.0, {}), ("", -1.0, {}), ("a c", -6.0, {}))
    assert select(nbest, rule(kind="argmax", score={"am": 1})).index == 1
    assert select(nbest, rule(score={"am": 1}, posterior={"tau": 0.1})).index == 1
    assert not select(make("", ""), rule(posterior={"kind": "uniform"})).fallback


def test_missing_scores_are_errors_that_name_them():
    nbest = make(("a", -1.0, {"pll": -1.0}), ("b", -1.0, {"ll": -1.0}), utt="utt7")
    wanted = r"utterance 'utt7': candidate 1 'b': score 'pll' \(term 'pll'\) is missing"
    for kind in ("argmax", "mbr"):
        with pytest.raises(DataError, match=wanted):
            select(nbest, rule(kind=kind))
    with pytest.raises(DataError, match="candidate 0 'a': score 'path_logp'"):
        select(nbest, rule(score={"path": 1}))
    with pytest.raises(DataError, match=r"candidate 0 'a': score 'll'"):
        select(nbest, rule(kind="two_stage", score={"am": 1}))
    assert term(Terms(nbest), "am", ScoreNames(), np.array([True, False]))[0] == -1.0


def test_names_of_scores_and_sizes_of_lists():
    nbest = make(*((t, -1.0, {"small": s}) for t, s in [("a", -3.0), ("b", -2.0), ("c", -1.0)]))
    keys = {"kind": "argmax", "names": {"pll": "small"}}
    assert select(nbest, rule(**keys)).index == 2
    assert select(nbest, rule(**keys, candidates=2)).index == 1
    shared = Shared(nbest)
    small = rule(posterior={"kind": "uniform"}, candidates=2)
    assert len(select(nbest, small, shared).criterion) == 2


def test_preparing_normalises_and_merges():
    nbest = make("Yes.", "yes", "no")
    assert prepare(nbest, rule()).texts == ["Yes.", "yes", "no"]
    assert prepare(nbest, rule(normalizer="whisper_basic")).texts == ["yes", "no"]
    assert prepare(nbest, rule(normalizer="whisper_basic", dedup=False)).texts == ["yes", "yes", "no"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tau": 3}, "unknown key 'rescoring.tau'"),
        ({"loss": "CER"}, "loss: expected 'cer'"),
        ({"posterior": {"tau": 0}}, "posterior.tau: 0.0"),
        ({"posterior": {"tau": math.nan}}, "posterior.tau: nan"),
        ({"score": {"pll": 0}}, "every coefficient is 0"),
        ({"score": {"pll": math.inf}}, "finite ones expected"),
        ({"kind": "two_stage", "second": {"ll": 0}}, "second: every coefficient"),
        ({"loss": "neg_bleu", "denominator": "ref"}, "contradicts loss: neg_bleu"),
        ({"keep": 0}, "keep: 0"),
        ({"candidates": 0}, "candidates: 0"),
        ({"max_unk_rate": -1}, "max_unk_rate"),
        ({"kind": "argmax", "loss": "wer"}, "rescoring.loss: without effect under kind: argmax"),
        ({"kind": "greedy", "score": {"am": 1}}, "rescoring.score: without effect under kind: greedy"),
        ({"keep": 3}, "rescoring.keep: without effect under kind: mbr"),
        ({"length": "tokens"}, "rescoring.length: without effect"),
        ({"posterior": {"kind": "uniform"}, "score": {"am": 1}}, "score: without effect under kind: mbr"),
        ({"posterior": {"kind": "counts", "tau": 3}}, "posterior.tau: without effect"),
    ],
)
def test_wrong_configurations_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        rescore_config(keys)


def test_expected_loss():
    losses = np.array([[0.0, 2.0], [1.0, 0.0]])
    assert expected_loss(losses, np.array([0.25, 0.75])).tolist() == [1.5, 0.25]


CONF = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf"


def test_every_committed_rule_loads_and_is_what_its_name_says():
    loaded = {p.stem: load_rescore_config(p) for p in sorted(CONF.glob("**/decode_mbr_*.yaml"))}
    recipe = loaded["decode_mbr_pll"]
    assert (recipe.kind, recipe.loss, recipe.denominator) == ("mbr", "cer", "max")
    assert (recipe.score.used(), recipe.posterior.tau) == ({"pll": 1.0}, 10.0)
    assert loaded["decode_mbr_joint"].score.used() == {"am": 1.0, "pll": 1.0}
    assert loaded["decode_mbr_interpolation"].kind == "argmax"
    consistency = loaded["decode_mbr_self_consistency"]
    assert (consistency.loss, consistency.posterior.kind) == ("wer", "uniform")
    tiebreak = loaded["decode_mbr_tiebreak"]
    assert (tiebreak.kind, tiebreak.keep, tiebreak.second.used()) == ("two_stage", 5, {"ll": 1.0})
    assert len(loaded) == len(set(map(repr, loaded.values()))), "two files say the same"
    assert load_yaml(CONF / "decode_mbr_pll.yaml").keys() >= {"kind", "score", "posterior"}
