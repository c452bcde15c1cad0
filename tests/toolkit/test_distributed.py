"""Two processes on the CPU (gloo) train, through ESPnet's distributed mode, the model of one process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_training import CONF, prepared  # noqa: F401  (fixture)

from espnet_latentasr.bin import latentasr_train
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table

pytest.importorskip("espnet2", reason="ESPnet is not installed")
ROOT = Path(__file__).parents[2]


def in_two_processes(options: list[str], folder: Path) -> None:
    """Train with the ranks 0 and 1 side by side."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = [sys.executable, "-m", "espnet_latentasr.bin.latentasr_train", *options]
    base += ["--multiprocessing_distributed", "false", "--dist_backend", "gloo"]
    base += ["--dist_world_size", "2", "--dist_init_method", "env://"]
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
    env |= {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    logs = [folder / f"rank{rank}.log" for rank in range(2)]
    processes = []
    for rank, log in enumerate(logs):
        with open(log, "w") as stream:  # a file: an unread pipe would stop the process when it is full
            processes.append(
                subprocess.Popen(
                    [*base, "--dist_rank", str(rank)],
                    env=env | {"RANK": str(rank)},
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        codes = [process.wait(timeout=1800) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "\n".join(log.read_text()[-2000:] for log in logs)


def test_two_processes_make_one_model(prepared, tmp_path):  # noqa: F811
    """The paper's setting draws at random, each process for itself: it trains, and all is finite."""
    _, options = prepared
    options = [*options, "--config", str(CONF / "train_latent_paper.yaml")]
    options += ["--max_epoch", "2", "--batch_size", "4", "--num_workers", "0"]
    in_two_processes([*options, "--output_dir", str(tmp_path / "asr")], tmp_path)
    states = torch.load(tmp_path / "asr/latest.pth", weights_only=True)
    assert all(torch.isfinite(value).all() for value in states.values())
    assert states["method.value_head.linear.weight"].abs().sum() > 0, "it was zero before training"


def test_two_processes_make_the_model_of_one(prepared, tmp_path):  # noqa: F811
    """No draws, and one transcript, so that each half of a batch has half of its tokens.

    SGD, not AdamW, which makes a whole step of the rounding error of a gradient that is zero.
    """
    root, options = prepared
    ids = read_kaldi_table(root / "dump/train/text")
    write_kaldi_table(tmp_path / "text", dict.fromkeys(ids, "turn on the light"))
    options = [o.replace(f"{root / 'dump/train/text'},", f"{tmp_path / 'text'},") for o in options]
    options += ["--config", str(CONF / "train_latent.yaml"), "--optim", "sgd", "--optim_conf", "lr=0.3"]
    options += ["--max_epoch", "2", "--batch_size", "4", "--num_workers", "0"]
    in_two_processes([*options, "--output_dir", str(tmp_path / "two")], tmp_path)
    latentasr_train.main([*options, "--output_dir", str(tmp_path / "one")])
    two, one = (torch.load(tmp_path / n / "latest.pth", weights_only=True) for n in ("two", "one"))
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=0, atol=2e-6)
    assert one["method.value_head.linear.weight"].abs().sum() > 1e-4, "it was zero before training"
