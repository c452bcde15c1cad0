"""Files in, transcripts out: formats, what is left out, what a rerun does, and the exit code."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
import soundfile

from espnet_latentasr import Speech2Text
from espnet_latentasr.bin import transcribe as command
from espnet_latentasr.decode import transcribe as job
from espnet_latentasr.decode.transcript_formats import format_of, transcript_line, transcripts
from espnet_latentasr.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def asr(packed, tiny_backbone_dir):
    return Speech2Text.from_pretrained(packed, backbone=tiny_backbone_dir)


@pytest.fixture
def folder(tmp_path, tones):
    """Four good files, in a folder of a folder too, beside a note."""
    place = tmp_path / "audio"
    (place / "deep").mkdir(parents=True)
    for index, path in enumerate(tones[:4]):
        shutil.copy(path, place / ("deep" if index == 3 else "") / path.name)
    (place / "notes.txt").write_text("no audio")
    return place


@pytest.fixture
def run(packed, tiny_backbone_dir):
    def call(*words):
        model = ["--model", str(packed), "--backbone", str(tiny_backbone_dir)]
        return command.main([*model, *map(str, words)])

    return call


def test_texts_are_those_of_the_call(run, asr, folder, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    assert run(folder, "--output", output, "--trace", "true") == 0
    rows = [json.loads(line) for line in output.open()]
    files = [folder / "deep/utt3.wav", *(folder / f"utt{n}.wav" for n in range(3))]
    assert [row["file"] for row in rows] == list(map(str, files))
    for row, ((text, tokens, _, best),) in zip(rows, asr(files)):
        assert (row["text"], row["tokens"], row["steps"]) == (text, tokens, best.trace.steps)
        assert row["values"] == pytest.approx(best.trace.values, abs=1e-4)
        assert row["seconds"] == pytest.approx(len(asr.load(row["file"])) / 16000)
    assert "4 files: 4 transcribed (0 of them by an earlier run), 0 unusable" in capsys.readouterr().err
    assert not output.with_name("out.jsonl.partial").exists()


def test_bad_files_are_named_and_cost_only_themselves(run, folder, tmp_path, capsys, caplog):
    (folder / "broken.wav").write_bytes(b"RIFF no audio")
    soundfile.write(folder / "silent.wav", np.zeros(16000), 16000)
    soundfile.write(folder / "stereo.flac", np.full((16000, 2), 0.1), 16000)
    output = tmp_path / "out.csv"
    assert run(folder, tmp_path / "gone.wav", "--output", output) == command.SOME_UNUSABLE
    rows = list(csv.DictReader(output.open(newline="")))
    bad = {os.path.basename(row["file"]): row["error"] for row in rows if row["error"]}
    assert bad.keys() == {"broken.wav", "silent.wav", "stereo.flac", "gone.wav"}
    for name, reason in (("gone.wav", "missing"), ("silent.wav", "silent"), ("stereo.flac", "stereo")):
        assert reason in bad[name] and f"{name}: left out" in caplog.text
    assert all(row["text"] for row in rows if not row["error"]) and len(rows) == 8
    assert "8 files: 4 transcribed (0 of them by an earlier run), 4 unusable" in capsys.readouterr().err


def test_a_rerun_tries_what_is_left_and_what_changed(run, folder, tmp_path, capsys, clips):
    output, broken = tmp_path / "out.txt", folder / "broken.wav"
    broken.write_bytes(b"RIFF no audio")
    assert run(folder, "--output", output) == command.SOME_UNUSABLE
    assert len(output.read_text().split("\n")) == 5
    journal = output.with_name("out.txt.partial")
    with journal.open("a") as file:
        file.write('{"identity": [1, 2], "row": {"fi')  # killed while it wrote
    soundfile.write(broken, clips[5], 16000, "PCM_16")
    os.utime(folder / "utt0.wav", ns=(1, 1))  # another file under the same name
    capsys.readouterr()
    assert run(folder, "--output", output) == 0
    assert "5 files: 5 transcribed (3 of them by an earlier run), 0 unusable" in capsys.readouterr().err
    assert not journal.exists() and len(output.read_text().split("\n")) == 6


def test_another_rule_starts_anew(asr, folder, tmp_path):
    output, files = tmp_path / "out.txt", job.find_audio([folder])
    first = job.transcribe(asr, files, job.request_of(asr), output)
    assert job.transcribe(asr, files, job.request_of(asr), output).reused == 4
    assert job.transcribe(asr, files, job.request_of(asr, steps=0), output).reused == 0
    again = job.transcribe(asr, files, job.request_of(asr), output)
    assert again.reused == 0 and again.rows.keys() == first.rows.keys()
    assert [row["text"] for row in again.rows.values()] == [row["text"] for row in first.rows.values()]


def test_a_file_that_does_not_fit_the_recogniser_leaves_its_batch(asr, folder, monkeypatch):
    files = job.find_audio([folder])
    monkeypatch.setattr(asr.recogniser.backbone, "max_samples", 17000, raising=False)
    summary = job.transcribe(asr, files, job.request_of(asr, long_audio="refuse"))
    (path,) = summary.problems
    assert path.endswith("utt2.wav") and "hears 1.0625 s at once" in summary.problems[path]
    assert len(summary.rows) == 3
    monkeypatch.undo()
    original = asr.recogniser.encode

    def encode(clips):
        if any(len(clip) > 17000 for clip in clips.audio):
            raise DataError("position 9 of a row: too many")
        return original(clips)

    monkeypatch.setattr(asr.recogniser, "encode", encode)
    assert job.transcribe(asr, files, job.request_of(asr)).problems == {
        path: "position 9 of a row: too many"
    }


def test_a_long_file_is_heard_in_parts(run, asr, tmp_path, clips, monkeypatch, caplog):
    """Two clips with a pause between them, where the recogniser hears one and a half at once."""
    monkeypatch.setattr("espnet_latentasr.backbone.qwen3_asr.Qwen3ASRBackbone.max_samples", 24000)
    sounds = [np.resize(clip, 14000) for clip in clips[:2]]
    pause = np.zeros(4000, np.float32)
    whole = np.concatenate([sounds[0], pause, sounds[1]])
    soundfile.write(tmp_path / "long.wav", whole, 16000, "PCM_16")
    soundfile.write(tmp_path / "short.wav", sounds[0], 16000, "PCM_16")
    output = tmp_path / "out.jsonl"
    caplog.set_level("INFO")
    assert run(tmp_path, "--output", output, "--trace", "true", "--nbest", "2") == 0
    long, short = (json.loads(line) for line in output.open())
    assert "long.wav: longer than heard at once, 2 parts" in caplog.text
    cut = round(long["parts"][0]["end"] * 16000)
    assert 14000 <= cut <= 18000 and long["seconds"] == len(whole) / 16000
    saved, _ = soundfile.read(tmp_path / "long.wav", dtype="float32")
    alone = [asr(part, nbest=2) for part in (saved[:cut], saved[cut:])]
    assert [part["text"] for part in long["parts"]] == [found[0][0] for found in alone]
    assert long["text"] == " ".join(found[0][0] for found in alone)
    assert long["steps"] == [found[0][3].trace.steps for found in alone]
    assert long["score"] == pytest.approx(sum(found[0][3].score for found in alone), abs=1e-3)
    assert [len(part["nbest"]) for part in long["parts"]] == [2, 2] and "parts" not in short
    assert transcript_line(long, "text", True).count(" / ") == 2


def test_a_silent_part_has_no_text(asr, tmp_path, clips, monkeypatch):
    monkeypatch.setattr(asr.recogniser.backbone, "max_samples", 24000, raising=False)
    whole = np.concatenate([np.resize(clips[0], 14000), np.zeros(24000, np.float32)])
    soundfile.write(tmp_path / "x.wav", whole, 16000, "PCM_16")
    (row,) = job.transcribe(asr, [str(tmp_path / "x.wav")], job.request_of(asr)).rows.values()
    first, *rest = row["parts"]
    assert first["text"] and row["text"] == first["text"]
    assert rest[-1]["text"] == "" and row["stopped"][-1] == "silence"


def test_standard_output_and_a_channel(run, tmp_path, clips, capsys):
    both = np.stack([clips[0], clips[0][::-1]], 1)
    soundfile.write(tmp_path / "two.wav", both, 16000, "PCM_16")
    soundfile.write(tmp_path / "one.wav", clips[0], 16000, "PCM_16")
    assert run(tmp_path / "two.wav", "--channel", "0", "--nbest", "2") == 0
    assert run(tmp_path / "one.wav", "--nbest", "2") == 0
    first, second = capsys.readouterr().out.strip().split("\n")
    assert first.split("\t")[1:] == second.split("\t")[1:]
    assert run(tmp_path / "one.wav", "--format", "csv") == 0
    assert capsys.readouterr().out.startswith("file,text,language,seconds,score,capped,error\n")


def test_an_experiment_instead_of_a_pack(experiment, folder, tmp_path, capsys):
    words = ["--backbone_dir", experiment.backbone_dir, "--asr_train_config", experiment.config]
    words += ["--asr_model_file", experiment.model, "--inference_config", experiment.decode]
    assert command.main([str(folder / "utt0.wav"), *map(str, words), "--lang", "en"]) == 0
    assert capsys.readouterr().out.startswith(str(folder / "utt0.wav") + "\t")


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "--model, or --backbone_dir of an experiment"),
        (["--model", "x", "--backbone_dir", "y"], "not both"),
        (["--backbone_dir", "y", "--revision", "z"], "--revision: of a hub id"),
        (["--output", "x.doc"], "ends in none of .txt"),
    ],
)
def test_options_that_contradict(folder, words, message):
    with pytest.raises(ConfigError, match=message):
        command.main([str(folder), *words])


def test_outputs_that_would_do_harm(folder, tmp_path):
    with pytest.raises(ConfigError, match="is one of the audio files"):
        command.main([str(folder), "--output", str(folder / "utt0.wav"), "--format", "text"])
    with pytest.raises(ConfigError, match="is a folder"):
        command.main([str(folder), "--output", str(tmp_path), "--format", "text"])


def test_finding_files(folder, tmp_path):
    (folder / "loop").symlink_to(folder)
    names = job.find_audio([folder / "notes.txt", folder, folder / "utt0.wav"])
    assert names[0].endswith("notes.txt") and len(names) == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no audio file below it"):
        job.find_audio([tmp_path / "empty"])


ROW = {
    "file": "a\tb.wav", "text": '=1+1, "two"', "language": "en", "seconds": 1.5, "score": -0.5,
    "capped": False, "steps": 2, "stopped": "step", "values": [0.5, -0.25], "update_norms": [1.0],
    "tokens": ["a", "b"],
}  # fmt: skip


def test_formats():
    assert transcript_line(ROW, "text", False) == 'a b.wav\t=1+1, "two"\n'
    assert transcript_line(ROW, "text", True) == 'a b.wav\t=1+1, "two"\t2\t0.5000 -0.2500\n'
    assert json.loads(transcript_line(ROW, "jsonl", True)) == ROW
    assert "values" not in json.loads(transcript_line(ROW, "jsonl", False))
    nbest = ROW | {"nbest": [{"text": "x", "score": -1.0}]}
    assert json.loads(transcript_line(nbest, "jsonl", False))["nbest"] == nbest["nbest"]
    for trace in (True, False):
        text = transcripts([ROW, ROW], {"c.wav": "broken, badly"}, "csv", trace)
        *good, bad = csv.DictReader(text.splitlines(keepends=True))
        assert all(row["text"] == ROW["text"] and row["error"] == "" for row in good)
        assert (bad["file"], bad["text"], bad["error"]) == ("c.wav", "", "broken, badly")
        assert ("values" in bad) == trace
    assert transcripts([ROW], {"c.wav": "x"}, "text", False).count("\n") == 1


def test_format_names(tmp_path):
    assert format_of(None, None) == "text" and format_of("csv", tmp_path / "x.txt") == "csv"
    assert [format_of(None, tmp_path / f"x{s}") for s in (".txt", ".jsonl", ".csv")] == [
        "text", "jsonl", "csv",
    ]  # fmt: skip
