"""The score cache: what was scored is not scored again, and nothing stale or damaged is believed."""

from __future__ import annotations

import json

import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.score_cache import ScoreCache, cache_key, cached_scores

TEXTS = {"turn the light on": "utt1", "ann": "utt2", "": "utt3", 'a "quoted" ünïcode': "utt4"}


class Counting:
    """Scores a text by a function of its length, and remembers what it was asked."""

    tolerance = 1e-3

    def __init__(self, factor: float = -0.1, model: str = "m", die_at: int | None = None) -> None:
        self.factor, self.identity, self.die_at = factor, {"model": model, "options": {}}, die_at
        self.calls: list[list[str]] = []

    def unknown(self, text):
        return 0, len(text.split())

    def score(self, texts):
        self.calls.append(list(texts))
        if len(self.calls) == self.die_at:
            raise KeyboardInterrupt
        return {text: self.factor * len(text) / 3 if text else None for text in texts}


def recomputed(scorer) -> set[str]:
    return {text for call in scorer.calls for text in call}


def test_a_hit_is_what_would_be_computed(tmp_path):
    fresh, count = cached_scores(Counting(), TEXTS, tmp_path)
    assert count == len(TEXTS) and fresh == Counting().score(TEXTS)
    again, count = cached_scores(Counting(), TEXTS, tmp_path)
    assert count == 0 and again == fresh, "exactly the same numbers, None included"
    assert list(again) == list(TEXTS)


def test_only_new_texts_are_scored(tmp_path, monkeypatch):
    monkeypatch.setattr("espnet_latentasr.rescoring.score_cache.RECOMPUTED", 0)
    cached_scores(Counting(), TEXTS, tmp_path)
    scorer = Counting()
    found, count = cached_scores(scorer, {**TEXTS, "jan": "utt5"}, tmp_path)
    assert count == 1 and recomputed(scorer) == {"jan"}
    assert found["jan"] == pytest.approx(-0.1)


def test_no_cache_scores_each_text_once():
    scorer = Counting()
    assert cached_scores(scorer, TEXTS)[1] == len(TEXTS)
    assert sorted(text for call in scorer.calls for text in call) == sorted(TEXTS)


def test_another_model_or_option_has_a_cache_of_its_own(tmp_path):
    cached_scores(Counting(), TEXTS, tmp_path)
    found, count = cached_scores(Counting(-0.2, model="other"), TEXTS, tmp_path)
    assert count == len(TEXTS) and found["ann"] == pytest.approx(-0.2)
    assert cache_key({"a": 1, "b": {"c": 2}}) == cache_key({"b": {"c": 2}, "a": 1})
    assert cache_key({"a": 1}) != cache_key({"a": 2}) != cache_key({"a": "2"})
    folders = {json.loads((f / "identity.json").read_text())["model"] for f in tmp_path.iterdir()}
    assert folders == {"m", "other"}


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("espnet_latentasr.rescoring.score_cache.CHUNK_TEXTS", 2)
    monkeypatch.setattr("espnet_latentasr.rescoring.score_cache.RECOMPUTED", 0)
    texts = {f"{'word ' * n}end": f"utt{n}" for n in range(7)}
    with pytest.raises(KeyboardInterrupt):
        cached_scores(Counting(die_at=3), texts, tmp_path)
    scorer = Counting()
    found, count = cached_scores(scorer, texts, tmp_path)
    assert count == 3 and found == Counting().score(texts)


def test_two_jobs_write_side_by_side(tmp_path):
    first, second = (ScoreCache(tmp_path, {"model": "m"}) for _ in "ab")
    first.add({"ann": -1.0})
    second.add({"jan": -2.0})
    assert ScoreCache(tmp_path, {"model": "m"}).scores == {"ann": -1.0, "jan": -2.0}


@pytest.mark.parametrize("damage", ["cut", "changed", "header", "foreign", "empty"])
def test_a_damaged_shard_is_not_believed(tmp_path, damage, caplog):
    cached_scores(Counting(), TEXTS, tmp_path)
    (shard,) = tmp_path.glob("*/shard.*.jsonl")
    content = shard.read_text()
    shard.write_text(
        {
            "cut": content[:-20],
            "changed": content.replace("-0.1", "-0.2"),
            "header": content.partition("\n")[2],
            "foreign": content.replace(cache_key(Counting().identity), "0" * 16),
            "empty": "",
        }[damage]
    )
    found, count = cached_scores(Counting(), TEXTS, tmp_path)
    assert count == len(TEXTS) and found == Counting().score(TEXTS)
    assert "damaged" in caplog.text


def test_stored_scores_of_another_model_are_noticed(tmp_path):
    """The identity is the same, but the model gives other numbers: say, a library that changed."""
    cached_scores(Counting(-0.1), TEXTS, tmp_path)
    with pytest.raises(DataError, match="utterance 'utt.'.*delete that folder"):
        cached_scores(Counting(-0.2), TEXTS, tmp_path)
    close = Counting(-0.1 - 1e-5)
    assert cached_scores(close, TEXTS, tmp_path)[1] == 0, "rounding is no difference"


def test_an_undefined_score_against_a_number_is_noticed(tmp_path):
    scorer = Counting()
    ScoreCache(tmp_path, scorer.identity).add({"ann": None})
    with pytest.raises(DataError, match="stored score None of 'ann'"):
        cached_scores(scorer, {"ann": "utt2"}, tmp_path)
