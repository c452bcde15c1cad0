"""The stress suite: a draw that can be repeated, and copies named as stage 2 names them."""

import pytest

from espnet_latentasr.bin import stress_suite as command
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.noise import noisy_copy
from espnet_latentasr.data.stress import (
    MANIFEST,
    choose,
    copy_name,
    named_dirs,
    read_manifest,
    stress_suite,
)
from espnet_latentasr.errors import DataError


@pytest.fixture
def sets(tmp_path, make_dir, tone):
    """Two sets of 7 and 3 utterances."""
    return {
        name: make_dir(tmp_path / name, {f"{name}{i}": (tone(hz=200 + 20 * i), 16000) for i in range(n)})
        for name, n in (("ami", 7), ("cv", 3))
    }


def test_suite(tmp_path, sets, files_of):
    out = tmp_path / "data"
    assert stress_suite(sets, out, num=5) == {"ami_snr0": 5, "cv_snr0": 3}
    ami, cv = KaldiDir.load(out / "ami_snr0"), KaldiDir.load(out / "cv_snr0")
    assert cv.utts == ["cv0", "cv1", "cv2"]
    assert set(ami.utts) < {f"ami{i}" for i in range(7)}
    rows = (out / MANIFEST).read_text().splitlines()
    assert rows[0] == "set\tutt\ttext_sha256"
    assert [row.split("\t")[:2] for row in rows[1:]] == [
        *(["ami", utt] for utt in ami.utts),
        *(["cv", utt] for utt in cv.utts),
    ]
    # The noise is that of a copy of the whole set, so results of both are paired.
    noisy_copy(sets["ami"], tmp_path / "whole", 0, 0)
    whole, part = files_of(tmp_path / "whole" / "wavs"), files_of(out / "ami_snr0" / "wavs")
    assert part.items() < whole.items()
    before = files_of(out)
    assert stress_suite(sets, out, num=5) == {"ami_snr0": 5, "cv_snr0": 3}
    assert files_of(out) == before


def test_smaller_draws_are_parts_of_larger_ones(sets):
    loaded = {name: KaldiDir.load(path) for name, path in sets.items()}
    draws = [set(choose(loaded, num, 42)["ami"]) for num in range(1, 8)]
    assert all(a < b for a, b in zip(draws, draws[1:], strict=False))
    assert len({tuple(choose(loaded, 3, seed)["ami"]) for seed in range(10)}) > 1


def test_manifest_repeats_a_draw(tmp_path, sets):
    stress_suite(sets, tmp_path / "one", num=2, selection_seed=7)
    again = stress_suite(sets, tmp_path / "two", [None, 5.0], manifest=tmp_path / "one" / MANIFEST)
    assert again == {"ami_clean": 2, "ami_snr5": 2, "cv_clean": 2, "cv_snr5": 2}
    first, second = (KaldiDir.load(tmp_path / n) for n in ("one/ami_snr0", "two/ami_clean"))
    assert first.utts == second.utts
    assert (tmp_path / "one" / MANIFEST).read_bytes() == (tmp_path / "two" / MANIFEST).read_bytes()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("ami\tnobody\tx", r"tsv:2: utterance 'nobody' of set 'ami': not in .*same release"),
        ("ami\tami0\tx", r"tsv:2: utterance 'ami0' of set 'ami': another transcript \('words of ami0'"),
        ("ted\tt0\tx", r"tsv:2: utterance 't0' of set 'ted': no such set is given \(ami, cv\)"),
        ("", "lists nothing of set 'ami'"),
    ],
)
def test_manifest_of_something_else(tmp_path, sets, row, message):
    path = tmp_path / "m.tsv"
    path.write_text("set\tutt\ttext_sha256\n" + f"{row}\n" * bool(row))
    with pytest.raises(DataError, match=message):
        stress_suite(sets, tmp_path / "out", manifest=path)
    assert not (tmp_path / "out").exists()


def test_not_a_manifest(tmp_path, sets):
    with pytest.raises(DataError, match="no such manifest"):
        read_manifest(tmp_path / "x.tsv", {})
    (tmp_path / "x.tsv").write_text("a b\n")
    with pytest.raises(DataError, match="columns .*expected"):
        read_manifest(tmp_path / "x.tsv", {})


def test_names():
    assert {n: str(p) for n, p in named_dirs(["data/cv", "ami=x/ihm/test", "e=a=b"]).items()} == {
        "cv": "data/cv", "ami": "x/ihm/test", "e": "a=b",
    }  # fmt: skip
    for words in (["a/test", "b/test"], ["/x/y=z"], []):
        with pytest.raises(DataError, match="NAME=DIR"):
            named_dirs(words)
    assert [copy_name("a", snr) for snr in (None, 0.0, 2.5)] == ["a_clean", "a_snr0", "a_snr2.5"]


def test_an_unusable_utterance_is_an_error(tmp_path, sets):
    wav = read_kaldi_table(sets["cv"] / "wav.scp")
    write_kaldi_table(sets["cv"] / "wav.scp", wav | {"cv1": str(tmp_path / "gone.wav")})
    with pytest.raises(DataError, match="1 of 3 utterances are unusable.*'cv1': missing"):
        stress_suite(sets, tmp_path / "out")
    assert not (tmp_path / "out" / "cv_snr0" / "wav.scp").exists()


def test_command(tmp_path, sets, capsys):
    out = tmp_path / "out"
    dirs = [f"{name}={path}" for name, path in sets.items()]
    command.main(["--data_dirs", *dirs, "--output_dir", str(out), "--num", "2", "--snrs", "clean 0"])
    assert capsys.readouterr().out.splitlines() == [
        *(f"{out / name}: 2 utterances" for name in ("ami_clean", "ami_snr0", "cv_clean", "cv_snr0")),
        f"{out / MANIFEST}: the utterances",
    ]
