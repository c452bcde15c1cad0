"""Whisper through ESPnet's trainer and back into decoding; the trainer is tested with the other kind."""

from pathlib import Path

import pytest
import soundfile

pytest.importorskip("espnet2", reason="ESPnet is not installed")

from espnet_latentasr.bin import freeze_backbone, latentasr_train
from espnet_latentasr.config import DecodeConfig, PromptConfig, build
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.decode.baseline import baseline_pass
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.recogniser import Clips

CONF = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf"
TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan in the kitchen"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, tiny_whisper_dir, clips):
    """Stages 1 to 10 on four tones: returns (folder, training options)."""
    root = tmp_path_factory.mktemp("whisper_recipe")
    freeze_backbone.main(["--name", str(tiny_whisper_dir), "--output_dir", str(root / "backbone")])
    data = root / "dump/train"
    data.mkdir(parents=True)
    ids = [f"utt{index}" for index in range(4)]
    wav = {utt_id: str(data / f"{utt_id}.wav") for utt_id in ids}
    for utt_id, clip in zip(ids, clips):
        soundfile.write(wav[utt_id], clip, 16000, "PCM_16")
    own = {utt_id: utt_id for utt_id in ids}
    tables = {"wav.scp": wav, "text": dict(zip(ids, TEXTS)), "utt2spk": own, "spk2utt": own}
    for name, table in (tables | {"utt2lang": dict.fromkeys(ids, "en")}).items():
        write_kaldi_table(data / name, table)
    backbone = load_recogniser(root / "backbone").recogniser.backbone
    baseline_pass(backbone, PromptConfig(), data, root / "cache/train", batch_size=4)
    options = ["--backbone_dir", str(root / "backbone"), "--ngpu", "0", "--seed", "3"]
    for split in ("train", "valid"):
        for place, name, kind in (
            (root / "cache/train/audio_embeds.scp", "speech_states", "kaldi_ark"),
            (data / "text", "text", "text"),
            (root / "cache/train/baseline", "baseline", "text_float"),
            (data / "utt2lang", "lang", "text"),
        ):
            options += [f"--{split}_data_path_and_name_and_type", f"{place},{name},{kind}"]
    shapes = [f"--{split}_shape_file={data / 'wav.scp'}" for split in ("train", "valid")]
    latentasr_train.main(
        [*options, *shapes, "--collect_stats", "true", "--output_dir", str(root / "stats")]
        + ["--config", str(CONF / "tuning/train_prompt.yaml")]
    )
    for split in ("train", "valid"):
        options.append(f"--{split}_shape_file={root / 'stats' / split / 'speech_states_shape'}")
    return root, options


@pytest.mark.parametrize("name, steps", [("latent", 4), ("lora", 0)])
def test_train_and_decode(prepared, tiny_whisper_dir, clips, name, steps):
    """The recipe's configurations, on the small recogniser in place of the one they name."""
    root, options = prepared
    output, config = root / name, root / f"{name}.yaml"
    config.write_text(
        f"base: {CONF}/tuning/train_whisper_{name}.yaml\n"
        f"backbone_conf: {{name: {tiny_whisper_dir.resolve()}}}\n"
    )
    flags = ["--max_epoch", "1", "--batch_size", "4", "--num_workers", "0"]
    latentasr_train.main([*options, "--config", str(config), "--output_dir", str(output), *flags])
    loaded = load_recogniser(root / "backbone", output / "config.yaml", output / "latest.pth")
    assert loaded.recogniser.method.config.backbone.kind == "whisper"
    rules = [build(DecodeConfig, {"halting": {"kind": kind}}) for kind in ("always", "never")]
    adapted, frozen = loaded.recogniser.recognise(Clips(clips[:4], ["en"] * 4), rules)
    plain = load_recogniser(root / "backbone").recogniser
    expected = plain.recognise(Clips(clips[:4], ["en"] * 4), rules[1:])[0]
    assert [r.hypothesis.tokens for r in frozen] == [r.hypothesis.tokens for r in expected]
    assert {r.trace.steps for r in adapted} == {steps}


def test_cached_states_decode_like_new_ones(prepared):
    root, _ = prepared
    recogniser = load_recogniser(root / "backbone").recogniser
    cache = EncoderCache(root / "cache/train", recogniser.backbone)
    audio = [soundfile.read(root / f"dump/train/utt{i}.wav", dtype="float32")[0] for i in range(4)]
    cached = [cache.read(f"utt{i}", clip) for i, clip in enumerate(audio)]
    assert {tuple(states.shape) for states in cached} == {(200, 64)}
    rule = build(DecodeConfig, {"halting": {"kind": "never"}})
    found, expected = (
        recogniser.recognise(Clips(audio, ["en"] * 4, states), [rule])[0] for states in (cached, None)
    )
    assert [r.hypothesis.tokens for r in found] == [r.hypothesis.tokens for r in expected]
    assert (root / "cache/train/hyp").read_text().split("\n")[0] == f"utt0 {expected[0].text}"
