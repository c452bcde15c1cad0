"""The activation set: nested, independent of order, and pinned once and for all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.bin import sample_activation
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.mixture import nested_sample
from espnet_latentasr.errors import DataError

IDS = [f"spk{n % 7}-utt{n:03d}" for n in range(100)]


def test_golden():
    """The draw must never change: published activation sets depend on it."""
    assert nested_sample(IDS, 3, 42) == ["spk2-utt002", "spk2-utt072", "spk5-utt040"]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 99), st.integers(0, 5), st.randoms(use_true_random=False))
def test_nested_sorted_and_order_free(num, seed, random):
    shuffled = random.sample(IDS, len(IDS))
    smaller, larger = nested_sample(shuffled, num, seed), nested_sample(IDS, num + 1, seed)
    assert set(smaller) < set(larger)
    assert len(smaller) == num and smaller == sorted(smaller)


def test_seeds_differ_and_bytes_order():
    assert nested_sample(IDS, 50, 1) != nested_sample(IDS, 50, 2)
    assert nested_sample(["b", "é", "a", "Z"], 4, 0) == ["Z", "a", "b", "é"]


@pytest.mark.parametrize(
    "ids, num, message",
    [
        (IDS, 101, "101 utterances asked for, but there are 100"),
        (IDS, 0, "at least 1"),
        (["a", "b", "a"], 1, "'a' is there twice"),
    ],
)
def test_errors(ids, num, message):
    with pytest.raises(DataError, match=message):
        nested_sample(ids, num, 42)


def test_command(tmp_path, good_dir, capsys):
    utts = KaldiDir.load(good_dir).utts
    write_kaldi_table(good_dir / "utt2num_samples", dict.fromkeys(utts, "8000"))
    command = ["--data_dir", str(good_dir), "--output_dir", str(tmp_path / "out"), "--seed", "1"]
    sample_activation.main([*command, "--num", "3"])
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: 3 of 5 utterances, seed 1\n"
    drawn = KaldiDir.load(tmp_path / "out")
    assert drawn.utts == nested_sample(utts, 3, 1)
    assert list(read_kaldi_table(tmp_path / "out" / "utt2num_samples")) == drawn.utts
    with pytest.raises(DataError, match="set: 6 utterances asked for, but there are 5"):
        sample_activation.main([*command, "--num", "6"])
    with pytest.raises(DataError, match="output is the input"):
        sample_activation.main(["--data_dir", str(good_dir), "--output_dir", str(good_dir),
                                "--num", "3"])  # fmt: skip
