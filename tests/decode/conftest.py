"""A small trained experiment as the recipe leaves it, and its pack."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile
from small_experiment import Experiment, write_experiment


@pytest.fixture(scope="session")
def experiment(tmp_path_factory, tiny_backbone_dir, clips) -> Experiment:
    """A latent adapter whose value head sends clips to different depths."""
    root = tmp_path_factory.mktemp("experiment")
    return write_experiment(root, tiny_backbone_dir, clips, latent={"scale": {"init": 2.0}})


@pytest.fixture(scope="session")
def packed(tmp_path_factory, experiment) -> Path:
    """Folder of the experiment's pack; the zip is beside it."""
    from espnet_latentasr.bin import pack

    folder = tmp_path_factory.mktemp("packed") / "adapter"
    pack.main(
        f"--backbone_dir {experiment.backbone_dir} --asr_train_config {experiment.config} "
        f"--asr_model_file {experiment.model} --inference_config {experiment.decode} --lang en "
        f"--out {folder}".split()
    )
    return folder


@pytest.fixture(scope="session")
def tones(tmp_path_factory, clips) -> list[Path]:
    """The clips as files of 16-bit samples."""
    folder = tmp_path_factory.mktemp("tones")
    paths = [folder / f"utt{index}.wav" for index in range(len(clips))]
    for path, clip in zip(paths, clips):
        soundfile.write(path, clip, 16000, "PCM_16")
    return paths
