"""docs/DATA_FORMATS.md: every example is read by the reader that the toolkit itself uses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from espnet_latentasr.analysis.decoded import read_decoded
from espnet_latentasr.data import manifest
from espnet_latentasr.data.audio import REMEDIES
from espnet_latentasr.data.format import FormatResult
from espnet_latentasr.data.formats.base import ReadOptions
from espnet_latentasr.data.formats.hf_write import FEATURES
from espnet_latentasr.data.formats.lhotse import read_lhotse
from espnet_latentasr.data.formats.nemo import read_nemo
from espnet_latentasr.data.journal import finished
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.data.length_filter import REASONS, filter_data_dir
from espnet_latentasr.data.noise import COLUMNS
from espnet_latentasr.data.recorded_noise import list_noise
from espnet_latentasr.data.skipped import read_skipped
from espnet_latentasr.data.stress import read_manifest
from espnet_latentasr.rescoring.nbest_list import read_nbest
from espnet_latentasr.rescoring.ngram import read_arpa
from espnet_latentasr.text.sclite import read_result_row
from espnet_latentasr.text.score_dir import read_score_json

DOC = Path(__file__).parents[1] / "docs" / "DATA_FORMATS.md"
SECTION = re.compile(r"^### (.+)\n(?:(?!#|```).*\n)*```text\n((?:.*\n)*?)```$", re.MULTILINE)
EXAMPLES = {name.replace("`", ""): block for name, block in SECTION.findall(DOC.read_text("utf-8"))}


def example(name: str) -> str:
    return EXAMPLES[name]


@pytest.fixture
def put(tmp_path):
    """Write an example as a file of its name and return the path."""

    def write(name: str, to: str | None = None) -> Path:
        path = tmp_path / (to or name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(example(name), encoding="utf-8")
        return path

    return write


@pytest.fixture
def data(put):
    """The Kaldi directory that the examples make together."""
    for name in ("wav.scp", "text", "utt2spk", "spk2utt", "utt2lang"):
        folder = put(name, f"data/{name}").parent
    return KaldiDir.load(folder)


def tsv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_kaldi_directory(data, put, tmp_path):
    assert len(data.utts) == 2
    assert set(data.languages().values()) == {"en"}
    segments = read_kaldi_table(put("segments"))
    spk = dict.fromkeys(segments, "en-gb-scotland_Alex")
    cut = KaldiDir(tmp_path, {"radio1": "/x.flac"}, spk, spk, segments=segments)
    assert [cut.source(utt)[1:] for utt in cut.utts] == [(0.0, 1.952), (2.4, None)]
    put("utt2num_samples", "data/utt2num_samples")
    assert put("feats_type").read_text() == "raw\n"
    report = filter_data_dir(data.path, tmp_path / "filtered", "train", (0.1, 2.0))
    assert [drop.detail[:7] for drop in report.dropped] == ["2.653 s"]
    assert (tmp_path / "filtered" / "feats_type").read_text() == example("feats_type")
    assert read_kaldi_table(put("utt2original")) == {"talk_1_a": "talk 1/a"}


def test_left_out(put):
    assert [reason in REMEDIES for _, reason, _ in read_skipped(put("skipped.tsv"))] == [True]
    assert [reason in REASONS for _, reason, _ in read_skipped(put("filtered.tsv"))] == [True]
    (result,) = finished(put(".format_journal.jsonl"), FormatResult)
    assert (result.utt_id, result.num_samples) == ("clip1", 31232)


def test_noise(put, tmp_path, data):
    for value in read_kaldi_table(put("utt2noise")).values():
        seed, asked, achieved, gain = value.split()
        assert (int(seed), float(asked), float(gain)) == (0, 0.0, 1.0)
        assert abs(float(achieved)) < 0.01
    rows = tsv(put("noise.tsv"))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["utt"], row["fit"]) for row in rows] == [(utt, "cropped") for utt in data.utts]
    assert json.loads(example("noise.json"))["snrs"] == [0.0]
    scp = put("noise.scp", "noise/noise.scp")
    for path in read_kaldi_table(scp).values():
        (scp.parent / path).touch()
    assert [file.noise_id for file in list_noise(scp.parent)] == ["kitchen", "rain-1"]
    assert read_manifest(put("stress_suite.tsv"), {"test_text": data}) == {"test_text": data.utts}
    assert [one.corpus for one in manifest.read_manifest(put("manifest.tsv"))] == ["common_voice"]


def test_prepared_sets(put, tmp_path):
    from espnet_latentasr.data.activation import LANGUAGES
    from espnet_latentasr.data.corpus_set import finished as finished_set
    from espnet_latentasr.data.mixture import load_mixture
    from espnet_latentasr.data.overlap import Overlap, SetOverlap, write_overlap
    from espnet_latentasr.data.published import parse_set_name
    from espnet_latentasr.text.languages import get_language

    assert get_language(example("score_lang").strip()).units == ("mer", "cer")
    folder = put("prepared.json", "set/prepared.json").parent
    about = json.loads(example("prepared.json"))
    assert finished_set(folder, about["plan_sha256"]) is None  # it lacks an utterance: looked at again
    corpus = parse_set_name(f"{about['corpus']}_{about['part']}_{about['split']}").corpus
    for name in ("page", "licence", "citation"):
        assert about[name] == getattr(corpus, name)
    mixture = json.loads(example("mixture.json"))
    (tmp_path / "m.yaml").write_text(json.dumps({"x": mixture["mixture"]}))
    assert load_mixture("x", tmp_path / "m.yaml").shares["common_voice"].quota == 3
    assert mixture["languages"] in LANGUAGES.values()
    table = json.loads(example("overlap.json"))
    tests = {name: SetOverlap(**one) for name, one in table["tests"].items()}
    whole = (table[name] for name in ("train", "utterances", "speakers_known", "kinds"))
    write_overlap(Overlap(*whole, tests), tmp_path / "overlap")
    assert json.loads((tmp_path / "overlap/overlap.json").read_text()) == table
    for name in ("overlap.md", "exclude"):
        assert (tmp_path / "overlap" / name).read_text() == example(name)


def test_manifests_of_others(put):
    files = [put("recordings.jsonl"), put("supervisions.jsonl")]
    (u,) = read_lhotse(files, ReadOptions()).utterances
    assert (u.utt_id, u.source[1:], u.language) == ("en-gb-scotland_Alex-part1", (0.0, 1.952), "en")
    (other,) = read_nemo([put("manifest.jsonl")], ReadOptions()).utterances
    assert (other.utt_id, other.text, other.speaker) == (u.utt_id, u.text, u.speaker)
    assert json.loads(example("dataset_info.json")) == {"features": FEATURES}


def test_decoding(put):
    """The decoded folder as the report reads it."""
    names = {
        "latent.jsonl": None,
        "identity.json": None,
        "nbest.jsonl": None,
        "text (of hypotheses)": "text",
    }
    for name, to in names.items():
        folder = put(name, f"exp/decode/set/{to or name}").parent
    for name in ("per_utt.csv", "score.json"):
        put(name, f"exp/decode/set/score_wer/{name}")
    decoded = read_decoded(folder)
    assert (decoded.errors.tolist(), decoded.steps.tolist()) == ([1, 2], [1, 1])
    assert read_score_json(folder / "score_wer" / "score.json")["unit"] == "wer"
    lists = list(read_nbest(folder / "nbest.jsonl"))
    assert [len(one) for one in lists] == [2, 2]
    tokens, ids, scores, texts = (
        read_kaldi_table(put(name), allow_empty=True)
        for name in ("token", "token_int", "score", "text (of hypotheses)")
    )
    for one in lists:
        assert ids[one.utt_id] == " ".join(map(str, one.hyps[1].tokens))
        assert len(tokens[one.utt_id].split()) == len(one.hyps[1].tokens)
        assert float(scores[one.utt_id]) == pytest.approx(one.hyps[1].am_logp, abs=1e-4)
        assert texts[one.utt_id] == one.hyps[1].text


def test_a_decoding_that_was_killed(put):
    from espnet_latentasr.decode.journal import Journal

    path = put("results.partial")
    header, row = map(json.loads, path.read_text().splitlines())
    made_with = {name: value for name, value in header.items() if name != "journal"}
    with Journal(path, made_with, {row["utt_id"]: row["key"], "another": "key"}) as journal:
        assert len(journal) == 1 and list(journal.read([row["utt_id"]])) == [row["row"]]
    with Journal(path, made_with, {row["utt_id"]: "of other audio"}) as journal:
        assert len(journal) == 0


def test_rescoring(put, tmp_path):
    from espnet_latentasr.rescoring.config import rescore_config
    from espnet_latentasr.rescoring.job import rescore_file

    record = json.loads(example("rescore.json"))
    config = rescore_config({"kind": "mbr", "loss": "wer", "score": {"am": 1.0}})
    rescore_file(put("nbest.jsonl"), config, tmp_path / "out")
    assert json.loads((tmp_path / "out/rescore.json").read_text()) == record
    assert (tmp_path / "out/selection.jsonl").read_text() == example("selection.jsonl")


def test_rerankers(put, tmp_path):
    """The documented folder is read, and is what a training writes."""
    import hashlib

    from espnet_latentasr.rescoring import rerankers
    from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, write_nbest
    from espnet_latentasr.rescoring.rerankers_config import reranker_config

    record, meta = json.loads(example("reranker.json")), Meta("sys", 8, "none", "m")
    lists = [
        NBest(f"utt{n:04}", meta, (Candidate(f"a {n}", "a", (1,), -2.0), Candidate("b", "b", (2,), -1.0)),
              ref=f"a {n}")
        for n in range(40)
    ]  # fmt: skip
    write_nbest(tmp_path / "train.jsonl", lists)
    settings = reranker_config(record["config"], "reranker.json")
    trained = rerankers.train_reranker(tmp_path / "train.jsonl", None, settings, tmp_path / "trained")
    assert {**trained, **dict.fromkeys(("nbest_sha256", "held_out", "sha256"))} == {
        **record, **dict.fromkeys(("nbest_sha256", "held_out", "sha256"))
    }  # fmt: skip
    put("utterances.txt", "trained/utterances.txt")
    other = example("reranker.json").replace(record["sha256"], trained["sha256"])
    (tmp_path / "trained/reranker.json").write_text(other)
    loaded = rerankers.load_reranker(tmp_path / "trained")
    assert loaded.utterances == {"utt0000", "utt0001"}
    write_nbest(tmp_path / "new.jsonl", [NBest("new", meta, lists[0].hyps)])
    rerankers.rerank_file(tmp_path / "new.jsonl", tmp_path / "nbest.jsonl", "head", loaded)
    ((key, mine),) = json.loads((tmp_path / "nbest.jsonl.head.json").read_text()).items()
    ((documented, theirs),) = json.loads(example("nbest.jsonl.head.json")).items()
    assert mine.keys() == theirs.keys()
    for named, identity in ((key, mine), (documented, theirs)):
        text = json.dumps(identity, sort_keys=True)
        assert named == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_sequence_training(put):
    import dataclasses

    from espnet_latentasr.analysis.sequence_runs import Grid, trajectory_rows
    from espnet_latentasr.sequence.guards import GuardReport

    root = put("trajectory.csv", "early_mwer_nbest_seed1/trajectory.csv").parents[1]
    rows = trajectory_rows(Grid(root, ("early",), ("mwer_nbest",), (1,)))
    assert [(row["epoch"], row["errors"], row["train_candidates"]) for row in rows] == [
        (0, 640, None), (1, 619, 3.8885)
    ]  # fmt: skip
    guards = GuardReport(**json.loads(example("guards.json")))
    assert guards.gap == pytest.approx(guards.greedy - guards.oracle)
    assert set(json.loads(example("guards.json"))) == {f.name for f in dataclasses.fields(GuardReport)}
    with open(put("training_gap.csv"), newline="") as file:
        (gap,) = csv.DictReader(file)
    assert float(gap["gap"]) == pytest.approx(float(gap["greedy"]) - float(gap["oracle"]))
    assert len(example("made_of").splitlines()) == 1


def test_scores(put):
    row = read_result_row(put("result.txt"))
    score = json.loads(example("score.json"))
    assert row["Err"] == pytest.approx(score["rates"]["Err"], abs=0.05)
    assert row["Snt"] == score["counts"]["sentences"]
    for name in ("ref.trn", "hyp.trn"):
        assert all(re.fullmatch(r".+ \(\S+-\S+\)", line) for line in example(name).splitlines())
    with open(put("top_errors.csv"), newline="") as file:
        assert [row["kind"] for row in csv.DictReader(file)] == ["substitution"] * 2


def test_language_models(put, tmp_path):
    from espnet_latentasr.rescoring.score_cache import ScoreCache

    assert read_arpa(put("ngram.arpa")) is not None
    identity = json.loads(example("scores/identity.json"))
    cache = ScoreCache(tmp_path / "cache", identity)
    put("shard.9f0a.jsonl", f"cache/{cache.key}/shard.9f0a.jsonl")
    assert ScoreCache(tmp_path / "cache", identity).scores == {"send nine to david and john": -21.4427}


def test_recogniser_and_cache(put, tmp_path, caplog):
    from types import SimpleNamespace

    import torch

    from espnet_latentasr.backbone.frozen import read_frozen
    from espnet_latentasr.decode.baseline import check_cache
    from espnet_latentasr.decode.encoder_cache import EncoderCache
    from espnet_latentasr.rescoring.ctc_nbest import recorded_model

    record = read_frozen(put("backbone.json").parent)
    assert example("tokens.txt").splitlines() == ["!", '"', "#"]
    check_cache(put("cache_key", "cache/cache_key").parent, example("cache_key").strip())
    index = put("shard.0000.json", "cache/shard.0000.json")
    (tmp_path / "cache" / "shard.0000.ark").write_bytes(bytes(json.loads(index.read_text())["bytes"]))
    backbone = SimpleNamespace(fingerprint=record.fingerprint, embedding_table=torch.zeros(1))
    assert len(EncoderCache(tmp_path / "cache", backbone).entries) == 1
    for name, fields in (("audio_embeds.scp", 1), ("baseline", 2), ("hyp", 6)):
        assert all(len(v.split()) == fields for v in read_kaldi_table(put(name)).values())
    posteriors = put("ctc_logp.scp", "post/ctc_logp.scp")
    assert len(read_kaldi_table(posteriors)) == 1
    put("posteriors.json", "post/posteriors.json")
    assert recorded_model(posteriors).startswith("sha256:58c8b316ec059267")


def test_no_example_is_unread():
    source = Path(__file__).read_text(encoding="utf-8")
    assert len(EXAMPLES) > 55
    assert [name for name in EXAMPLES if f'"{name}"' not in source] == []
    headings = re.findall(r"^### (.+)$", DOC.read_text("utf-8"), re.MULTILINE)
    assert [h.replace("`", "") for h in headings] == list(EXAMPLES)
