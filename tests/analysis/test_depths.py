"""Reading a pass over all depths, and the threshold rule against the loop's own."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.analysis.depths import (
    errors_at,
    has_all_depths,
    read_depths,
    select_threshold,
    steps_run,
)
from espnet_latentasr.errors import DataError
from espnet_latentasr.latent import halting
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer

NONE = get_normalizer("none")
PASS = {"b": (["x y", "x z", "x y z"], [0.1, 0.2, -0.3]), "a": (["", "q", "p"], [-0.5, 0.0, 0.5])}
REFERENCES = {"a": "p", "b": "x y z"}


def test_arrays_by_hand(write_pass):
    found = read_depths(write_pass(PASS), REFERENCES, NONE)
    assert found.utts == ("a", "b")
    assert found.errors.tolist() == [[1, 1, 0], [1, 1, 0]]
    assert found.lengths.tolist() == [1, 3]
    np.testing.assert_allclose(found.values, [[-0.5, 0.0, 0.5], [0.1, 0.2, -0.3]], rtol=1e-6)
    # The sum has the end token too: -1 over 1, 2, 2 and 3, 3, 4 tokens.
    np.testing.assert_allclose(found.log_probs, [[-1, -1 / 2, -1 / 2], [-1 / 3, -1 / 3, -1 / 4]])
    assert (found.steps, found.distinct) == (2, 1.0)


def test_errors_are_those_of_scoring_each_depth_alone(write_pass):
    normalizer = get_normalizer("whisper_basic")
    texts = {"u": (["One two", "one, TWO three", "three"], [0.0] * 3), "v": (["a b c"] * 3, [0.0] * 3)}
    references = {"u": "one two three!", "v": "A c"}
    found = read_depths(write_pass(texts), references, normalizer, "cer")
    for depth in range(3):
        hyps = {utt: hyps[depth] for utt, (hyps, _) in texts.items()}
        alone = score(references, hyps, "cer", normalizer)
        assert found.errors[:, depth].tolist() == [alone.utterances[u].counts.errors for u in "uv"]


def test_which_folders_hold_all_depths(write_pass, tmp_path):
    assert has_all_depths(write_pass(PASS))
    assert not has_all_depths(tmp_path)
    assert not has_all_depths(write_pass({"a": (["only one"], [0.1])}, name="policy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row["hyps"].pop(), r"nbest.jsonl:2: utterance 'a': 2 hypotheses, .*0\.\.2"),
        (lambda row: row["hyps"][1].update(depth=2), "utterance 'a': hypothesis 1 is of depth 2"),
        (lambda row: row["hyps"][1].pop("n_tok"), "utterance 'a': depth 1: .*n_tok"),
        (lambda row: row["hyps"][0].update(am_logp=float("nan")), "depth 0: .*not finite"),
        (lambda row: row.update(utt_id="c"), "first 'a'"),
        (lambda row: row.update(utt_id="b"), "second row"),
    ],
)
def test_broken_rows_name_file_line_and_utterance(write_pass, change, message):
    folder = write_pass(PASS)
    first, second = map(json.loads, (folder / "nbest.jsonl").read_text().splitlines())
    change(second)
    (folder / "nbest.jsonl").write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    with pytest.raises(DataError, match=message):
        read_depths(folder, REFERENCES, NONE)


def test_missing_values_and_other_references(write_pass):
    short = write_pass(PASS | {"a": (PASS["a"][0], [0.1])}, name="short")
    with pytest.raises(DataError, match=r"latent.jsonl:2: utterance 'a': 1 values.*3 finite"):
        read_depths(short, REFERENCES, NONE)
    with pytest.raises(DataError, match="the references 1; 1 are in one of the two only, first 'b'"):
        read_depths(write_pass(PASS), {"a": "p"}, NONE)
    (short / "latent.jsonl").write_text('{"utt_id": "a"')
    with pytest.raises(DataError, match=r"latent.jsonl:1: not a JSON object"):
        read_depths(short, REFERENCES, NONE)


VALUES = np.array([[-1, 1, 1], [0, -1, 1], [0, 0, -1], [0, 0, 0]], dtype=np.float32)


def test_threshold_by_hand():
    assert select_threshold(VALUES, 0.0, "keep").tolist() == [0, 1, 2, 2]
    assert select_threshold(VALUES, 0.0, "discard").tolist() == [0, 0, 1, 2]
    assert steps_run(VALUES, 0.0).tolist() == [0, 1, 2, 2]
    with pytest.raises(ValueError, match="on_halt: 'drop'"):
        select_threshold(VALUES, 0.0, "drop")


def test_extreme_thresholds():
    assert select_threshold(VALUES, -np.inf).tolist() == [2] * 4
    assert select_threshold(VALUES, np.inf).tolist() == [0] * 4


rows = st.integers(2, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([-0.7, -0.1, 0.0, 0.1, 0.7]), min_size=n, max_size=n),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=40)
@given(rows, st.sampled_from([-0.1, 0.0, 0.1, 0.7]), st.sampled_from(["keep", "discard"]))
def test_threshold_is_the_loops_rule(values, theta, on_halt):
    # 0.1 and 0.7 are no float32: the comparison must be the loop's.
    tensor = torch.tensor(values)
    kept, entered = halting.chosen_depth(tensor, halting.threshold(theta), on_halt)
    assert select_threshold(np.array(values), theta, on_halt).tolist() == kept.tolist()
    assert (steps_run(np.array(values), theta) > 0).tolist() == entered.tolist()


@settings(max_examples=40)
@given(rows, st.floats(-1, 1), st.floats(-1, 1))
def test_a_higher_threshold_never_thinks_longer(values, first, second):
    values, (low, high) = np.array(values), sorted((first, second))
    for on_halt in ("keep", "discard"):
        assert (select_threshold(values, high, on_halt) <= select_threshold(values, low, on_halt)).all()
    assert (select_threshold(values, low, "discard") <= select_threshold(values, low, "keep")).all()


def test_errors_of_a_choice():
    assert errors_at(np.array([[1, 2], [3, 4]]), np.array([1, 0])).tolist() == [2, 3]
