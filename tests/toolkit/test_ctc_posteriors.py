"""Posteriors of small random ESPnet models: the same numbers as ESPnet's own encoder and CTC head."""

import json

import kaldiio
import numpy as np
import pytest
import soundfile
import torch
import yaml

pytest.importorskip("espnet2", reason="ESPnet is not installed")

from espnet_latentasr.bin import ctc_nbest, ctc_posteriors
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import read_nbest
from espnet_latentasr.toolkit.asr import ASRTask
from espnet_latentasr.toolkit.ctc_posteriors import CtcModel, PosteriorKind, write_posteriors

TOKENS = ["<blank>", "<unk>", "▁a", "b", "▁ab", "c", "<sos/eos>"]
ENCODER = {"output_size": 8, "attention_heads": 2, "linear_units": 8, "num_blocks": 2}


def saved_model(folder, **changes):
    """An ESPnet experiment folder with random weights."""
    config = {
        "token_list": TOKENS,
        "encoder": "transformer",
        "encoder_conf": ENCODER | {"input_layer": "linear", "dropout_rate": 0.3},
        "model_conf": {"ctc_weight": 1.0},
        "use_preprocessor": False,
        "init": "xavier_uniform",
    } | changes
    folder.mkdir()
    parser = ASRTask.get_parser()
    parser.set_defaults(**config)
    args = parser.parse_args(["--output_dir", str(folder)])
    torch.manual_seed(0)
    model = ASRTask.build_model(args)
    (folder / "config.yaml").write_text(yaml.safe_dump(vars(args)))
    torch.save(model.state_dict(), folder / "model.pth")
    return folder / "config.yaml", folder / "model.pth"


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A model of features with global normalisation, its inputs, and their table."""
    root = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(0)
    matrices = {f"u{n}": rng.normal(size=(n + 4, 5)).astype(np.float32) for n in range(3)}
    kaldiio.save_ark(str(root / "f.ark"), matrices, scp=str(root / "f.scp"))
    np.savez(root / "stats.npz", count=9, sum=np.arange(5.0), sum_square=np.arange(5.0) + 9)
    normalize = {"normalize": "global_mvn", "normalize_conf": {"stats_file": str(root / "stats.npz")}}
    return CtcModel(*saved_model(root / "model", input_size=5, **normalize)), matrices, root


def test_features_give_espnets_numbers(features):
    model, matrices, root = features
    assert write_posteriors(model, root / "f.scp", root / "out") == 3
    written = dict(kaldiio.load_scp(str(root / "out/ctc_logp.scp")))
    assert list(written) == ["u0", "u1", "u2"]
    batch = torch.zeros(3, 6, 5)
    for row, matrix in zip(batch, matrices.values()):
        row[: len(matrix)] = torch.from_numpy(matrix)
    lengths = torch.tensor([4, 5, 6])
    with torch.no_grad():
        encoded, frames = model.model.encode(batch, lengths)
        expected = model.model.ctc.log_softmax(encoded)
    for utt_id, row, count in zip(written, expected, frames):
        np.testing.assert_allclose(written[utt_id], row[:count].numpy(), atol=1e-5)
        np.testing.assert_allclose(np.exp(written[utt_id]).sum(1), 1, atol=1e-5)
    assert (root / "out/tokens.txt").read_text().split() == TOKENS
    assert model.model.normalize is not None and model.body.normalize is None


def test_other_posteriors(features):
    model, matrices, root = features
    plain = model.posteriors(matrices["u0"], "u0", PosteriorKind())
    same = model.posteriors(matrices["u0"], "u0", PosteriorKind("contrastive", amount=0.0))
    np.testing.assert_allclose(same, plain, atol=1e-5)
    against = model.posteriors(matrices["u0"], "u0", PosteriorKind("contrastive", amount=1.0))
    assert np.abs(against - plain).max() > 0.01
    dropped = model.posteriors(matrices["u0"], "u0", PosteriorKind("mc_dropout", passes=2))
    again = model.posteriors(matrices["u0"], "u0", PosteriorKind("mc_dropout", passes=2))
    assert np.abs(dropped - plain).max() > 1e-3 and (dropped == again).all()
    assert not model.model.training
    names = set()
    for kind in (PosteriorKind(), PosteriorKind("mc_dropout"), PosteriorKind("mc_dropout", seed=1)):
        write_posteriors(model, root / "f.scp", root / "kinds", kind)
        names.add(json.loads((root / "kinds/posteriors.json").read_text())["model"])
    assert len(names) == 3, "lists of different posteriors must not be mixed"


def test_from_audio_files_to_candidate_lists(tmp_path, clips):
    config, weights = saved_model(tmp_path / "model", frontend_conf={"n_fft": 128, "hop_length": 64})
    lines = []
    for index, clip in enumerate(clips[:2]):
        soundfile.write(tmp_path / f"{index}.wav", clip, 16000, "PCM_16")
        lines.append(f"utt{index} {tmp_path / f'{index}.wav'}\n")
    (tmp_path / "wav.scp").write_text("".join(lines))
    out = tmp_path / "out"
    command = ["--asr_train_config", config, "--asr_model_file", weights, "--output_dir", out]
    ctc_posteriors.main([*map(str, command), "--input", str(tmp_path / "wav.scp")])
    lists = ["--posteriors", out / "ctc_logp.scp", "--token_list", out / "tokens.txt"]
    lists += ["--size", 4, "--max_unk_rate", 1, "--out", tmp_path / "nbest.jsonl"]
    ctc_nbest.main(list(map(str, lists)))
    found = list(read_nbest(tmp_path / "nbest.jsonl"))
    assert [nbest.utt_id for nbest in found] == ["utt0", "utt1"]
    assert found[0].meta.model == CtcModel(config, weights).identity
    (out / "posteriors.json").unlink()
    with pytest.raises(DataError, match="posteriors.json: cannot be read .*--model"):
        ctc_nbest.main(list(map(str, lists)))


def test_what_cannot_be_computed_is_named_and_costs_nothing_else(features, caplog):
    model, matrices, root = features
    (root / "bad.scp").write_text((root / "f.scp").read_text() + f"u9 {root / 'none.ark'}:3\n")
    with pytest.raises(DataError, match="1 of 4 utterances have no posteriors, first 'u9'"):
        write_posteriors(model, root / "bad.scp", root / "partly")
    assert len(list(kaldiio.load_scp(str(root / "partly/ctc_logp.scp")))) == 3
    assert not (root / "partly/posteriors.json").exists(), "an unfinished archive has no record"
    (root / "pipe.scp").write_text("u1 cat x |\n")
    with pytest.raises(DataError, match="'cat x |' is a command"):
        write_posteriors(model, root / "pipe.scp", root / "piped")
    with pytest.raises(ConfigError, match="no such file; a trained ESPnet ASR model expected"):
        CtcModel(root / "config.yaml", root / "model.pth")


def test_another_sampling_rate_is_refused(tmp_path):
    frontend = {"fs": "8k", "n_fft": 128, "hop_length": 64}
    config, weights = saved_model(tmp_path / "model", frontend_conf=frontend)
    with pytest.raises(ConfigError, match="fs: 8000 Hz, 16000 Hz expected"):
        CtcModel(config, weights)


def test_an_utterance_too_short_for_the_encoder_is_named(tmp_path):
    encoder = ENCODER | {"input_layer": "conv2d"}
    config, weights = saved_model(tmp_path / "model", input_size=20, encoder_conf=encoder)
    rng = np.random.default_rng(0)
    matrices = {f"u{n}": rng.normal(size=(n, 20)).astype(np.float32) for n in (3, 30)}
    kaldiio.save_ark(str(tmp_path / "f.ark"), matrices, scp=str(tmp_path / "f.scp"))
    with pytest.raises(DataError, match="1 of 2 utterances have no posteriors, first 'u3'.*too short"):
        write_posteriors(CtcModel(config, weights), tmp_path / "f.scp", tmp_path / "out")
    assert list(kaldiio.load_scp(str(tmp_path / "out/ctc_logp.scp"))) == ["u30"]
