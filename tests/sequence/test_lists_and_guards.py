"""Lists drawn while training, what is measured on them before training, and the settings."""

import logging

import numpy as np
import pytest

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.ctc_paths import keyed_rng
from espnet_latentasr.sequence.candidates import draw, greedy_tokens, independent_paths
from espnet_latentasr.sequence.config import (
    GuardConfig,
    ListConfig,
    SequenceConfig,
    sequence_config,
    with_model_of,
)
from espnet_latentasr.sequence.guards import Measured, check


def posterior(rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, dtype=np.float64))


def to_text(tokens):
    return " ".join("xab"[k] for k in tokens)


LP = posterior([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])


def test_greedy_first_then_as_drawn_each_text_once():
    found = draw(LP, "u", "a", ListConfig(size=16, num_paths=200), to_text, keyed_rng(1, "u"))
    assert found.tokens[0] == greedy_tokens(LP) == (1,)
    assert sorted(found.texts) == ["", "a", "a b", "b", "b a"] and found.words == 1
    assert dict(zip(found.texts, found.errors)) == {"a": 0, "": 1, "b": 1, "a b": 1, "b a": 1}
    assert found.usable and found.costs("rate").tolist() == found.costs("errors").tolist()
    again = draw(LP, "u", "a", ListConfig(size=16, num_paths=200), to_text, keyed_rng(1, "u"))
    assert again.texts == found.texts
    few = draw(LP, "u", "a", ListConfig(size=3, num_paths=200), to_text, keyed_rng(1, "u"))
    assert few.texts == found.texts[:3]


def test_first_draws_follow_the_model():
    # The second entry is the first text drawn that is not greedy's: P(text) / (1 - P(greedy)).
    seconds = []
    for n in range(2000):
        found = draw(LP, "u", "a", ListConfig(size=2, num_paths=40), to_text, keyed_rng(n, "u"))
        seconds.append(found.texts[1])
    greedy = 0.5 * 0.6 + 0.2 * 0.1 + 0.5 * 0.1  # a-, -a, aa
    wanted = {"b": 0.3 * 0.6 + 0.2 * 0.3 + 0.3 * 0.3, "": 0.2 * 0.6, "a b": 0.5 * 0.3, "b a": 0.3 * 0.1}
    for text, p in wanted.items():
        share = p / (1 - greedy)
        assert seconds.count(text) / 2000 == pytest.approx(share, abs=4 * (share / 2000) ** 0.5)


def test_paths_are_independent_draws_of_every_frame():
    lp = posterior([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [0.9, 0.1, 0.0]])
    paths = independent_paths(lp, 20_000, np.random.default_rng(0))
    assert paths.shape == (20_000, 3) and (paths[:, 1] == 1).all() and (paths[:, 2] < 2).all()
    for first, second in np.ndindex(3, 2):
        wanted = np.exp(lp[0, first] + lp[2, second])
        share = ((paths[:, 0] == first) & (paths[:, 2] == second)).mean()
        assert share == pytest.approx(wanted, abs=4 * (wanted / 20_000) ** 0.5)


def test_different_tokens_of_one_text_are_one_candidate():
    found = draw(LP, "u", "q", ListConfig(num_paths=50), lambda tokens: "q", keyed_rng(0, "u"))
    assert found.texts == ("q",) and not found.usable


def measured(**over):
    seen = Measured()
    lists = [
        draw(LP, "u", "a", ListConfig(size=8, num_paths=100), to_text, keyed_rng(1, "u")),
        draw(LP, "v", "b b", ListConfig(size=8, num_paths=100), to_text, keyed_rng(1, "v")),
    ]
    keys = {"targets": [(1,), (2, 2)], "nll": [0.5, float("inf")], "drawn": lists, "unk": 9} | over
    seen.add(**keys)
    return seen.report(ListConfig(size=8, num_paths=100))


LOOSE = {"max_impossible": 1.0}


def guarded(report, **limits):
    check(report, SequenceConfig(guards=GuardConfig(**(LOOSE | limits))))


def test_what_is_measured(caplog):
    report = measured()
    assert (report.utterances, report.unk_rate, report.impossible) == (2, 0, 0.5)
    assert report.nll_per_token == 0.5, "a reference that does not fit is counted, not averaged"
    assert report.usable == 1 and report.better == 0.5
    assert (report.greedy, report.oracle) == pytest.approx((2 / 3, 1 / 3))
    assert report.gap == pytest.approx(1 / 3) and report.nbest_scale == 1
    with caplog.at_level(logging.INFO):
        guarded(report)
    assert "gap 33.33 points (G = 8 of 100 paths, nbest_scale 1" in caplog.text


@pytest.mark.parametrize(
    ("report", "limits", "message"),
    [
        ({"unk": 2}, {}, "66.7 % of the reference tokens of 2 .* <unk>, at most 1 %"),
        ({}, {"max_impossible": 0.1}, "50.0 % of the references .* more tokens than frames"),
        ({"nll": [23.0, float("inf")]}, {}, "23.00 nats per token .* at most 1 expected"),
        ({"nll": [float("inf")] * 2}, {}, "nan nats per token"),
    ],
)
def test_what_is_refused(report, limits, message):
    with pytest.raises(DataError, match=message):
        guarded(measured(**report), **limits)


def test_without_any_reward_there_is_nothing_to_train_on(caplog):
    flat = [draw(LP, "u", "a", ListConfig(), lambda tokens: "a", keyed_rng(0, "u"))]
    report = measured(targets=[(1,)], nll=[0.1], drawn=flat)
    with pytest.raises(DataError, match="0.00 % of 1 training utterances have candidates that differ"):
        guarded(report)
    with pytest.raises(DataError, match="no training utterance was read"):
        Measured().report(ListConfig())
    many = flat * 99 + [draw(LP, "v", "b", ListConfig(), to_text, keyed_rng(1, "v"))]
    guarded(measured(targets=[(1,)] * 100, nll=[0.1] * 100, drawn=many))
    assert "only 1.00 % of the utterances carry a reward" in caplog.text


def test_settings():
    config = sequence_config({"objective": "raft", "raft": {"reference_share": 1}, "list": {"size": 16}})
    assert config.raft.reference_share == 1 and config.list.size == 16
    for mapping, message in (
        ({"objective": "raft", "mwer": {"anchor": 0.5}}, "raft contradicts sequence_conf.mwer.anchor"),
        (
            {"mwer": {"kind": "eq4", "temperature": 2.0}},
            "temperature: 2.0 is without effect on kind: eq4",
        ),
        ({"mwer": {"ancor": 1}}, "did you mean 'sequence_conf.mwer.anchor'"),
        ({"list": {"size": 1}}, "list.size: 1, a number from 2"),
        ({"list": {"nbest_scale": 0.5}}, "nbest_scale: 0.5 without list.output_beam"),
        ({"mwer": {"kind": "grpo"}, "dropout": True}, "dropout: true contradicts mwer.kind: grpo"),
    ):
        with pytest.raises(ConfigError, match=message):
            sequence_config(mapping)
    # What a finished run has written down, with every key, is read again.
    import dataclasses

    assert sequence_config(dataclasses.asdict(config)) == config


def test_the_model_is_taken_from_where_training_starts():
    saved = {
        "token_list": ["<blank>", "a"],
        "encoder": "transformer",
        "max_epoch": 15,
        "bpemodel": "x.model",
    }
    found = with_model_of(saved, {"max_epoch": 5}, "c.yaml")
    assert found == {
        "token_list": ["<blank>", "a"],
        "encoder": "transformer",
        "bpemodel": "x.model",
        "max_epoch": 5,
    }
    with pytest.raises(ConfigError, match="encoder: 'conformer' contradicts c.yaml"):
        with_model_of(saved, {"encoder": "conformer"}, "c.yaml")
    with pytest.raises(ConfigError, match="no token_list"):
        with_model_of({}, {}, "c.yaml")
