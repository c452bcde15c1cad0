"""The authors' checkpoint layout: read, checked, and decoded; made here, since theirs cannot be had."""

import numpy as np
import pytest
import torch
import yaml

from espnet_latentasr.adaptation.released_checkpoint import read_released
from espnet_latentasr.adaptation.released_experiment import write_experiment
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.config import DecodeConfig, build
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.recogniser import Clips
from espnet_latentasr.errors import ConfigError, DataError


def layout(width: int, steps: int, seed: int = 0) -> dict:
    """What their training script saves, in bfloat16."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (torch.randn(*shape, generator=generator) * 0.1).bfloat16()

    return {
        "epoch": 10,
        "global_step": 320,
        "model_id": "Qwen/Qwen3-ASR-0.6B",
        "train_mode": "latent",
        "n_latent": steps,
        "init_proj": {"weight": draw(width, width), "bias": draw(width)},
        "delta_proj": {"weight": draw(width, width), "bias": draw(width)},
        "step_proj": {"weight": draw(width, width)},
        "value_head": {"weight": draw(1, width), "bias": draw(1)},
        "injection_gate": {"0.weight": draw(width, 2 * width), "0.bias": draw(width)},
        "step_embed": draw(steps, width),
        "log_scale": torch.full((steps,), -1.5),
        "wer_base": 4.9,
    }


@pytest.fixture
def saved(tmp_path):
    def write(changes=lambda d: d, width=64, steps=4):
        content = layout(width, steps)
        changed = changes(content)
        path = tmp_path / "latentASR_adapter.pth"
        torch.save(content if changed is None else changed, path)
        return path

    return write


def test_the_published_size(saved):
    released = read_released(saved(width=1024))
    assert (released.count, released.steps, released.width) == (5_251_077, 4, 1024)
    assert all(tensor.dtype == torch.float32 for tensor in released.parameters.values())
    assert released.settings == {
        "epoch": 10,
        "global_step": 320,
        "model_id": "Qwen/Qwen3-ASR-0.6B",
        "train_mode": "latent",
        "n_latent": 4,
        "wer_base": 4.9,
    }


def test_every_number_arrives_under_our_name(saved):
    content = layout(64, 4)
    found = read_released(saved()).parameters
    assert torch.equal(found["adapter.delta_projection.bias"], content["delta_proj"]["bias"].float())
    assert torch.equal(found["adapter.gate.weight"], content["injection_gate"]["0.weight"].float())
    assert torch.equal(found["adapter.step_embedding"], content["step_embed"].float())
    assert len(found) == 11


@pytest.mark.parametrize(
    "changes, said",
    [
        (lambda d: d.pop("init_proj") and None, "no state dictionary 'init_proj'"),
        (lambda d: d.pop("log_scale") is None, "no tensor 'log_scale'"),
        (lambda d: d["step_proj"].update(bias=torch.zeros(64)), "'step_proj' has .*'bias'"),
        (lambda d: d.update(n_latent=3), "n_latent is 3, but step_embed has 4 rows"),
        (
            lambda d: d["value_head"].update(weight=torch.zeros(2, 64)),
            r"value_head.linear.weight has shape \(2, 64\), \(1, 64\) expected",
        ),
        (
            lambda d: d["init_proj"]["bias"].fill_(float("nan")) is None,
            "initial_projection.bias has values that are not finite",
        ),
        (lambda d: [1, 2], "a dictionary expected, found list"),
    ],
)
def test_another_layout_is_refused_by_name(saved, changes, said):
    def apply(content):
        result = changes(content)
        return result if isinstance(result, list) else content

    with pytest.raises(DataError, match=said):
        read_released(saved(apply))


class Payload:
    def __reduce__(self):
        return (print, ("code ran",))


def test_code_in_the_file_is_not_run(saved, capsys):
    with pytest.raises(DataError, match="not a checkpoint of tensors and plain values"):
        read_released(saved(lambda d: d | {"epoch": Payload()}))
    assert "code ran" not in capsys.readouterr().out


def test_a_git_lfs_pointer_says_so(tmp_path):
    path = tmp_path / "latentASR_adapter.pth"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:f0ce\nsize 10507457\n")
    with pytest.raises(DataError, match="Git LFS pointer: fetch the file itself"):
        read_released(path)


@pytest.fixture
def experiment(tmp_path, tiny_backbone_dir, saved):
    """Backbone record, configuration, and a function that converts."""
    from espnet_latentasr.bin import freeze_backbone

    freeze_backbone.main(
        ["--name", str(tiny_backbone_dir), "--output_dir", str(tmp_path / "backbone")]
    )
    config = tmp_path / "released.yaml"
    config.write_text("latent_conf: {loop: released, steps: 4}\n")
    return tmp_path, config


def test_a_converted_adapter_decodes(experiment, saved, clips):
    folder, config = experiment
    write_experiment(saved(), folder / "backbone", config, folder / "asr_released")
    settings = yaml.safe_load((folder / "asr_released/config.yaml").read_text())
    assert settings["released_settings"]["model_id"] == "Qwen/Qwen3-ASR-0.6B"
    loaded = load_recogniser(
        folder / "backbone",
        folder / "asr_released/config.yaml",
        folder / "asr_released/valid.ce.best.pth",
    )
    backbone: Backbone = loaded.recogniser.backbone
    rule = {"halting": {"kind": "threshold", "theta": -2.0}, "on_halt": "discard"}
    clip = Clips(clips[:2], ["en"] * 2)
    results = loaded.recogniser.recognise(clip, [build(DecodeConfig, rule)])[0]
    assert [r.trace.steps for r in results] == [4, 4]
    # v_0 by hand: value(InitProj(h_0 / |h_0|)) at the last prompt position.
    from espnet_latentasr.config import PromptConfig

    prompt = backbone.text.prompt("en", PromptConfig())
    with torch.no_grad():
        hidden = backbone.prefill(backbone.encode(clips[:1]), [prompt], None, True).hidden[0]
    content = {k: v for k, v in layout(64, 4).items()}
    unit = (hidden / hidden.norm()).numpy().astype(np.float64)
    weight, bias = (content["init_proj"][k].float().numpy() for k in ("weight", "bias"))
    thought = weight @ unit + bias
    head, shift = (content["value_head"][k].float().numpy() for k in ("weight", "bias"))
    expected = float(np.tanh(head @ thought + shift)[0])
    assert results[0].trace.values[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "text, said",
    [
        ("latent_conf: {loop: paper}", "latent_conf.loop is 'paper', 'released' expected"),
        ("latent_conf: {loop: released, steps: 2}", "latent_conf.steps is 2"),
        ("latent_conf: {loop: released, gate: open}", "parameters do not fit"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(experiment, saved, text, said):
    folder, config = experiment
    config.write_text(text + "\n")
    with pytest.raises(ConfigError, match=said):
        write_experiment(saved(), folder / "backbone", config, folder / "asr_released")
    assert not (folder / "asr_released").exists()
