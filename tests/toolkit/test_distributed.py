"""Two processes on the CPU (gloo) train one model through ESPnet's distributed mode."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_training import CONF, prepared  # noqa: F401  (fixture)

pytest.importorskip("espnet2", reason="ESPnet is not installed")
ROOT = Path(__file__).parents[2]


def test_two_processes_make_one_model(prepared, tmp_path):  # noqa: F811
    _, options = prepared
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = [sys.executable, "-m", "espnet_latentasr.bin.latentasr_train", *options]
    base += ["--config", str(CONF / "train_latent_paper.yaml"), "--output_dir", str(tmp_path / "asr")]
    base += ["--max_epoch", "2", "--batch_size", "4", "--num_workers", "0"]
    base += ["--multiprocessing_distributed", "false", "--dist_backend", "gloo"]
    base += ["--dist_world_size", "2", "--dist_init_method", "env://"]
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
    env |= {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    logs = [tmp_path / f"rank{rank}.log" for rank in range(2)]
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
        codes = [process.wait(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "\n".join(log.read_text()[-2000:] for log in logs)
    states = torch.load(tmp_path / "asr/latest.pth", weights_only=True)
    assert all(torch.isfinite(value).all() for value in states.values())
    assert states["method.value_head.linear.weight"].abs().sum() > 0, "it was zero before training"
