"""The frozen pass: computed once, reused when nothing changed, recomputed when something did."""

import kaldiio
import numpy as np
import pytest
import torch
from test_job import data_dir  # noqa: F401  (fixture)

from espnet_latentasr.config import PromptConfig
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode.baseline import baseline_pass
from espnet_latentasr.latent.losses import token_scores


def snapshot(folder):
    scp = read_kaldi_table(folder / "audio_embeds.scp")
    states = {utt_id: kaldiio.load_mat(place) for utt_id, place in scp.items()}
    return states, (folder / "baseline").read_text(), (folder / "hyp").read_text()


def test_pass_equals_encoding_and_scoring_each_clip_alone(
    tiny_backbone, tiny_prompt, data_dir, tmp_path, full_forward  # noqa: F811
):
    assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path, batch_size=3) == (8, 0)
    states, _, _ = snapshot(tmp_path)
    baseline = read_kaldi_table(tmp_path / "baseline")
    text = read_kaldi_table(data_dir / "text")
    for utt_id, path in read_kaldi_table(data_dir / "wav.scp").items():
        import soundfile

        clip = soundfile.read(path, dtype="float32")[0]
        audio = tiny_backbone.encode([clip]).audio[0]
        np.testing.assert_allclose(states[utt_id], audio.numpy(), atol=1e-5)
        ids = [*tiny_backbone.text.tokenize(text[utt_id]), tiny_backbone.text.end_id]
        embeds = torch.cat(
            [
                tiny_backbone.embed(torch.tensor(tiny_prompt.before)),
                audio,
                tiny_backbone.embed(torch.tensor(tiny_prompt.after)),
                tiny_backbone.embed(torch.tensor(ids[:-1])),
            ]
        )
        hidden = full_forward(embeds, range(len(embeds)))[-len(ids) :]
        logits = tiny_backbone.logits(hidden)
        zeros = torch.zeros(len(ids), dtype=torch.long)
        ce, accuracy = token_scores(logits, torch.tensor(ids), zeros, 1)
        found = [float(x) for x in baseline[utt_id].split()]
        assert found == pytest.approx([float(ce), float(accuracy)], abs=1e-4)


def test_a_rerun_reuses_everything(tiny_backbone, data_dir, tmp_path):  # noqa: F811
    baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path)
    before = snapshot(tmp_path)
    assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path) == (0, 8)
    after = snapshot(tmp_path)
    assert before[1:] == after[1:]
    assert all(np.array_equal(before[0][u], after[0][u]) for u in before[0])


def test_a_killed_pass_continues_with_the_rest(
    tiny_backbone, data_dir, tmp_path, monkeypatch  # noqa: F811
):
    monkeypatch.setattr("espnet_latentasr.decode.baseline.SHARD_UTTERANCES", 3)
    undisturbed = tmp_path / "whole"
    baseline_pass(tiny_backbone, PromptConfig(), data_dir, undisturbed)
    calls = []
    original = type(tiny_backbone).encode

    def dying(self, audio):
        calls.append(len(audio))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, audio)

    monkeypatch.setattr(type(tiny_backbone), "encode", dying)
    with pytest.raises(KeyboardInterrupt):
        baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path / "killed")
    assert not (tmp_path / "killed/audio_embeds.scp").exists()
    monkeypatch.setattr(type(tiny_backbone), "encode", original)
    assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path / "killed") == (2, 6)
    one, two = snapshot(undisturbed), snapshot(tmp_path / "killed")
    assert one[1:] == two[1:] and all(np.array_equal(one[0][u], two[0][u]) for u in one[0])


def test_another_transcript_prompt_or_recogniser_is_computed_anew(
    tiny_backbone, data_dir, tmp_path, monkeypatch  # noqa: F811
):
    baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path)
    assert baseline_pass(tiny_backbone, PromptConfig(context="ann"), data_dir, tmp_path) == (8, 0)
    monkeypatch.setattr(tiny_backbone, "fingerprint", "other")
    assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path) == (8, 0)
    monkeypatch.undo()
    text = read_kaldi_table(data_dir / "text")
    write_kaldi_table(data_dir / "text", text | {"utt3": "call jan"})
    try:
        assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path) == (1, 7)
    finally:
        write_kaldi_table(data_dir / "text", text)


def test_a_truncated_archive_is_noticed(tiny_backbone, data_dir, tmp_path, caplog):  # noqa: F811
    baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path)
    archive = next(tmp_path.glob("shard.*.ark"))
    archive.write_bytes(archive.read_bytes()[:-100])
    assert baseline_pass(tiny_backbone, PromptConfig(), data_dir, tmp_path) == (8, 0)
    assert "damaged" in caplog.text
