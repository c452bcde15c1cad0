"""The package's shape: who may import whom, and what a command may cost before it starts.

bin -> toolkit, report, analysis -> decode, rescoring, sequence, adaptation
    -> backbone, latent, text, stats, data
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NAME = "espnet_latentasr"
ROOT = Path(__file__).parents[1] / NAME

RANK = {
    "bin": 0,
    **dict.fromkeys(("toolkit", "report", "analysis"), 1),
    **dict.fromkeys(("decode", "rescoring", "sequence", "adaptation"), 2),
    **dict.fromkeys(("backbone", "latent", "text", "stats", "data"), 3),
}
COMMON = {"", "config", "errors", "fileio", "reading"}
# ESPnet's torchaudio placeholder must be made after transformers has looked for the real one.
MAY_IMPORT_TRANSFORMERS = (
    "backbone/",
    "adaptation/lora.py",
    "rescoring/lm_loading.py",
    "rescoring/small_lm.py",
    "toolkit/compat.py",
)
# Commands that run a model; every other one must start without torch.
WITH_MODEL = {
    "asr_train",
    "baseline_pass",
    "freeze_backbone",
    "latentasr_inference",
    "latentasr_train",
    "sequence_train",
    "convert_released",
    "train_mini_backbone",
}


def modules() -> list[tuple[str, Path]]:
    """Every module's dotted name and file."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found.append((".".join(p for p in parts if p != "__init__"), path))
    return found


def imported(path: Path, module: str) -> Iterator[str]:
    """Dotted names of all imports of a file, also those inside functions and for type checkers."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part_of(dotted: str) -> str | None:
    """First-level part of this package that a name belongs to; None for other packages."""
    first, *rest = dotted.split(".")
    if first != NAME:
        return None
    inside = rest[0] if rest else ""
    return "" if inside.startswith("__") else inside


def edges() -> Iterator[tuple[str, str, Path]]:
    """(importing part, imported part, file) of every import within the package."""
    for module, path in modules():
        for name in imported(path, module):
            target = part_of(name)
            if target is not None:
                yield part_of(module), target, path


MODULES = modules()
TOOLKIT = [module for module, _ in MODULES if part_of(module) == "toolkit"]


def test_imports_are_found_wherever_they_are(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import torch.nn as nn\nfrom espnet_latentasr import errors\n"
        "if TYPE_CHECKING:\n    from espnet_latentasr.toolkit.task import LatentASRTask\n"
        "def f():\n    import espnet2.tasks\n    from ..data import audio\n    from . import y\n"
    )
    assert set(imported(path, "espnet_latentasr.text.x")) == {
        "torch.nn",
        "espnet_latentasr.errors",
        "espnet_latentasr.toolkit.task.LatentASRTask",
        "espnet2.tasks",
        "espnet_latentasr.data.audio",
        "espnet_latentasr.text.y",
    }
    assert part_of("espnet_latentasr.data.audio") == "data"
    assert part_of("espnet_latentasr.__version__") == part_of("espnet_latentasr") == ""
    assert part_of("espnet2.tasks") is None


@pytest.mark.parametrize("module", [m for m, _ in MODULES if m not in TOOLKIT])
def test_every_module_can_be_imported(module):
    importlib.import_module(module)


@pytest.mark.slow
def test_every_toolkit_module_can_be_imported():
    if importlib.util.find_spec("espnet2") is None:
        pytest.skip("ESPnet is not installed (tools/install.sh installs it)")
    for module in TOOLKIT:
        # ESPnet3 is part of ESPnet from 202609 on, and needs its extra "train".
        if ".espnet3" in module and not all(map(importlib.util.find_spec, ("espnet3", "lightning"))):
            continue
        importlib.import_module(module)


def test_every_part_has_a_place_and_a_docstring():
    parts = {part_of(module) for module, _ in MODULES}
    assert parts <= set(RANK) | COMMON, "a new part needs a place in RANK"
    missing = [m for m, p in MODULES if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert not missing


def test_imports_point_one_way():
    for importer, target, path in edges():
        if target in COMMON or importer == target:
            continue
        assert importer not in COMMON, f"{path}: {importer or NAME} must not import {target}"
        assert RANK[importer] <= RANK[target], f"{path}: {importer} must not import {target}"


def test_parts_do_not_import_each_other_in_a_circle():
    uses: dict[str, set[str]] = {}
    for importer, target, _ in edges():
        if importer != target:
            uses.setdefault(importer, set()).add(target)
    while uses:
        leaves = {part for part in uses if not uses[part] & set(uses)}
        assert leaves, f"parts in a circle: {sorted(uses)}"
        uses = {part: targets for part, targets in uses.items() if part not in leaves}


def test_the_method_imports_torch_only():
    allowed = set(sys.stdlib_module_names) | {"torch"}
    for module, path in MODULES:
        if part_of(module) == "latent":
            for name in imported(path, module):
                ours = name.startswith(f"{NAME}.latent.")
                assert ours or name.split(".")[0] in allowed, f"{path}: {name}"


def test_only_commands_import_the_toolkit():
    for importer, target, path in edges():
        assert target != "toolkit" or importer in {"toolkit", "bin"}, path


def test_only_the_toolkit_imports_espnet():
    for module, path in MODULES:
        for name in imported(path, module):
            if name.split(".")[0] in {"espnet", "espnet2", "espnet3", "espnetez"}:
                assert part_of(module) == "toolkit", f"{path}: {name}"


def test_only_the_backbone_imports_the_model_library():
    for module, path in MODULES:
        where = path.relative_to(ROOT).as_posix()
        for name in imported(path, module):
            if name.split(".")[0] in {"transformers", "tokenizers", "peft"}:
                assert where.startswith(MAY_IMPORT_TRANSFORMERS), f"{path}: {name}"


HELP = """
import io, runpy, sys
from contextlib import redirect_stdout
for name in sys.argv[1:]:
    sys.argv = [name, "--help"]
    try:
        with redirect_stdout(io.StringIO()) as out:
            runpy.run_module("espnet_latentasr.bin." + name, run_name="__main__")
        print(name, "did not exit")
    except SystemExit as end:
        if end.code or "usage:" not in out.getvalue():
            print(name, "exited with", end.code)
    heavy = {"torch", "transformers", "espnet2"} & set(sys.modules)
    if heavy:
        print(name, "imported", sorted(heavy))
        break
"""


def test_commands_without_a_model_start_without_torch():
    names = [p.stem for p in (ROOT / "bin").glob("[!_]*.py")]
    assert WITH_MODEL <= set(names), "a command of WITH_MODEL is gone"
    light = sorted(set(names) - WITH_MODEL)
    assert "score" in light
    done = subprocess.run(
        [sys.executable, "-c", HELP, *light],
        capture_output=True,
        text=True,
        cwd=ROOT.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
