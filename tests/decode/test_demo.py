"""The recipe's demo: what it prints is what Speech2Text says, with the error counts of its references."""

import runpy
from pathlib import Path

import pytest
from small_experiment import write_experiment

from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.decode.speech2text import Speech2Text
from espnet_latentasr.errors import ConfigError

DEMO = Path(__file__).parents[2] / "egs2/latentasr/asr1/local/demo.py"


@pytest.fixture(scope="module")
def demo():
    return runpy.run_path(str(DEMO), run_name="demo")


def of(experiment) -> list[str]:
    return ["--exp", str(experiment.config.parent), "--backbone_dir", str(experiment.backbone_dir)]


def test_lines_are_those_of_the_recogniser(demo, experiment, tones, capsys):
    files = [str(path) for path in tones[:6]]
    demo["main"]([*files, *of(experiment)])
    lines = capsys.readouterr().out.splitlines()
    asr = Speech2Text(experiment.backbone_dir, experiment.config, experiment.model)
    assert asr.metadata["model"] in lines[0] and asr.metadata["backbone"] in lines[0]
    steps = asr.recogniser.method.config.latent.steps
    depths = set()
    for path in tones[:6]:
        place = lines.index(path.name)
        for offset, rule in enumerate(({"steps": 0}, {"steps": steps}, {"theta": 0.0}), start=1):
            text, _, _, known = asr(path, **rule)[0]
            line = lines[place + offset]
            assert line.endswith(f"depth {known.trace.steps}  {text or '(no words)'}")
        depths.add(known.trace.steps)
        values = " ".join(f"{value:+.3f}" for value in known.trace.values)
        assert f"values {values}  (stopped: {known.trace.stopped})" in lines[place + 4]
    assert len(depths) > 1, "the value head of this experiment divides the clips"
    assert "RESULTS.md" in lines[-1]


def test_clips_of_a_set_are_shown_with_their_errors(demo, experiment, tones, tmp_path, capsys):
    data = tmp_path / "set"
    ids = [path.stem for path in tones]
    asr = Speech2Text(experiment.backbone_dir, experiment.config, experiment.model)
    frozen = asr(tones[0], steps=0)[0][0]
    tables = {
        "wav.scp": {path.stem: str(path) for path in tones},
        "text": dict.fromkeys(ids, frozen + " extra"),
        "utt2spk": {i: i for i in ids},
        "utt2lang": dict.fromkeys(ids, "en"),
    }
    for name, table in tables.items():
        write_kaldi_table(data / name, table)
    demo["main"]([*of(experiment), "--data_dir", str(data), "--num", "2"])
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split(":")[0] for line in lines if line.endswith(' extra"')]
    assert shown == [ids[0], ids[4]]
    first = lines[lines.index(f'{ids[0]}: "{frozen} extra"') + 1]
    assert "1 err" in first and first.startswith("  frozen ")


def test_a_shared_adapter_serves_as_well(demo, packed, tones, tiny_backbone_dir, capsys):
    model = ["--model", str(packed), "--backbone", str(tiny_backbone_dir)]
    demo["main"]([str(tones[0]), *model])
    assert str(packed) in capsys.readouterr().out


def test_what_cannot_be_shown_is_said(demo, tones, tmp_path, tiny_backbone_dir, clips):
    with pytest.raises(ConfigError, match="no such model; ./run.sh trains it"):
        demo["main"]([str(tones[0]), "--exp", str(tmp_path)])
    with pytest.raises(ConfigError, match="--num 0"):
        demo["chosen"]("ab", 0)
    assert demo["chosen"]("abc", 9) == ["a", "b", "c"]
    prompt = write_experiment(tmp_path, tiny_backbone_dir, clips, "prompt")
    with pytest.raises(ConfigError, match="no latent adapter"):
        demo["main"]([str(tones[0]), *of(prompt)])
