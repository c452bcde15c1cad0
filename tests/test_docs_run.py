"""What the documentation says can be typed, typed.

How each command line of a page is checked:

- run for real on something small: ``RUN`` below, the Python example, the demo (``decode/test_demo.py``);
  the two commands of "Two commands" by ``recipe/test_end_to_end.py`` and by the tests themselves;
- every other line of ``run.sh``: by its own parser, with a last stage of 0, so that nothing is done;
- every other ``bin`` command: by its own parser (``test_docs.py``);
- ``run.py`` and ``local/demo.py``: options and files (``test_docs.py``); files of tests, tools and
  benchmarks: that they are there;
- the scripts below ``local/``: their options by name (``test_docs.py``); they run in small in the tests
  named after them.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import FENCE, PAGES, RECIPE, ROOT, pieces, words

from espnet_latentasr.data.kaldi_dir import write_kaldi_table

README = ROOT / "README.md"
# Whole command lines of the pages that are run here, in this order, in the folder of `recipe`.
RUN = ("doctor", "prepare kaldi", "validate_data_dir", "pack", "transcribe", "convert_data")
PYTHON = r"(?:tools/venv/bin/)?python3?"
KNOWN = re.compile(
    r"(?:cd \S+ && |\. \./path\.sh && )?(?:[A-Z_]+=\w+ )?"
    r"(?:\./run\.sh|\./asr_shim\.sh|local/\w+\.sh|(?:\./)?tools/\w+\.sh|printf '|#"
    rf"|{PYTHON} -m espnet_latentasr\.bin\.\w+|{PYTHON} -m pytest (?P<tests>\S+)"
    rf"|{PYTHON} (?P<script>run\.py|(?:benchmarks|local|tools)/\w[\w.]*\.py))"
)


def fenced_lines() -> list[tuple[Path, str]]:
    """Command lines of all shell blocks."""
    found = []
    for page in PAGES:
        for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "bash":
                lines = body.replace("\\\n", " ").split("\n")
                found += [(page, line.strip()) for line in lines if line.strip()]
    return found


def documented(command: str) -> list[list[str]]:
    """Argument lists of every whole ``bin.COMMAND`` line of the pages."""
    name, *first = command.split()
    found = []
    for page in PAGES:
        for piece in pieces(page):
            match = re.search(rf"-m espnet_latentasr\.bin\.{name}\b(.*)", piece)
            if match and words(match[1])[: len(first)] == first:
                found.append(words(match[1]))
    return found


def run_sh_lines() -> list[list[str]]:
    """Options of every ``run.sh`` line of the pages, in blocks and in the text."""
    found = []
    for page in PAGES:
        for piece in pieces(page):
            line = piece.partition("&& ")[2] or piece
            if line.strip().startswith("./run.sh "):
                # D stands for some folder, each time another.
                number = itertools.count()
                line = re.sub(r"\bD\b", lambda _: f"D{next(number)}", line)  # noqa: B023
                found.append(words(line)[1:])
    return found


def test_every_line_is_of_a_kind_that_is_checked():
    lines = fenced_lines()
    assert len(lines) > 25
    for page, line in lines:
        assert (match := KNOWN.match(line)), f"{page}: {line}"
        if named := match["script"] or match["tests"]:
            assert (ROOT / named).is_file() or (RECIPE / named).is_file(), f"{page}: {line}"
    assert all(documented(command) for command in RUN), "a command that is run here has left the pages"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the recipe's scripts beside links to package and tools."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("espnet_latentasr", "tools", "setup.py"):
        (root / name).symlink_to(ROOT / name)
    recipe = root / "egs2/latentasr/asr1"
    shutil.copytree(RECIPE / "conf", recipe / "conf")
    shutil.copytree(RECIPE / "local", recipe / "local")
    for path in RECIPE.glob("*.sh"):
        shutil.copy(path, recipe)
    return recipe


@pytest.mark.slow
def test_lines_of_run_sh_are_understood_by_it(copy):
    lines = run_sh_lines()
    assert len(lines) > 5
    for options in lines:
        if "--help" in options:
            continue
        done = subprocess.run(
            ["./run.sh", *options, "--stage", "1", "--stop_stage", "0"],
            cwd=copy, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{options}: {done.stderr}"
        assert "nothing to do: --stage 1 is behind --stop_stage 0" in done.stdout
    wrong = subprocess.run(["./run.sh", "--stages", "1"], cwd=copy, capture_output=True, text=True)
    assert wrong.returncode == 2 and "unknown option '--stages'" in wrong.stderr


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, clips) -> Path:
    """The recipe's folder after a run, in small: what the pages' commands find there."""
    sys.path.insert(0, str(ROOT / "tests/decode"))
    import soundfile
    from small_experiment import write_experiment

    folder = tmp_path_factory.mktemp("docs") / "recipe"
    for name in ("conf", "local"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(RECIPE / name)
    made = write_experiment(folder / "made", RECIPE / "local/mini_backbone", clips)
    exp = folder / "exp"
    exp.mkdir()
    (folder / "made/backbone").rename(exp / "backbone")
    made.config.parent.rename(exp / "asr_train_latent")
    recordings = folder / "recordings"
    recordings.mkdir()
    for number, clip in enumerate(clips[:3]):
        soundfile.write(recordings / f"{number}.wav", clip, 16000, "PCM_16")
    ids = ["0", "1", "2"]
    tables = {
        "wav.scp": {i: str(recordings / f"{i}.wav") for i in ids},
        "text": dict(zip(ids, ("turn on the light", "call ann", "seven"))),
        "utt2spk": {i: i for i in ids},
        "spk2utt": {i: i for i in ids},
        "utt2lang": dict.fromkeys(ids, "en"),
    }
    for place in ("corpora/my_set", "dump/raw/test_text"):
        for name, table in tables.items():
            write_kaldi_table(folder / place / name, table)
    return folder


def run_documented(command: str, monkeypatch, recipe: Path, replace: dict[str, str] | None = None) -> int:
    """Run every line of a command in the recipe's folder; returns their number."""
    monkeypatch.chdir(recipe)
    lines = documented(command)
    for line in lines:
        arguments = [(replace or {}).get(word, word) for word in line]
        module = importlib.import_module(f"espnet_latentasr.bin.{command.split()[0]}")
        assert module.main(arguments) in (None, 0), line
    return len(lines)


@pytest.mark.slow
def test_sharing_commands_work_as_written(recipe, monkeypatch):
    from espnet_latentasr.bin import latentasr_inference, merge_decode, score

    monkeypatch.chdir(recipe)
    common = ["--data_root", "dump/raw", "--test_set", "test_text"]
    common += ["--output_dir", "exp/asr_train_latent"]
    for name in ("decode_frozen", "decode_latent"):
        common += ["--inference_config", f"conf/{name}.yaml"]
    model = ["--asr_train_config", "exp/asr_train_latent/config.yaml"]
    model += ["--asr_model_file", "exp/asr_train_latent/valid.ce.best.pth"]
    latentasr_inference.main([*common, *model, "--backbone_dir", "exp/backbone"])
    merge_decode.main(common)
    for name in ("decode_frozen", "decode_latent"):
        out = f"exp/asr_train_latent/{name}/test_text"
        score.main(
            ["--ref", "dump/raw/test_text/text", "--hyp", f"{out}/text", "--lang", "en"]
            + ["--utt2spk", "dump/raw/test_text/utt2spk", "--output_dir", out]
        )
    assert run_documented("pack", monkeypatch, recipe) == 1
    assert (recipe / "mini_adapter.zip").is_file()
    assert run_documented("transcribe", monkeypatch, recipe) == 1
    assert len((recipe / "transcripts.jsonl").read_text().splitlines()) == 3

    root = recipe.parent
    shutil.copy(recipe / "mini_adapter.zip", root)
    shutil.copy(recipe / "recordings/0.wav", root / "speech.wav")
    (root / "egs2").symlink_to(ROOT / "egs2")
    monkeypatch.chdir(root)
    examples = [body for kind, body in FENCE.findall(README.read_text("utf-8")) if kind == "python"]
    for body in examples:
        names: dict[str, object] = {}
        exec(compile(body, str(README), "exec"), names)  # noqa: S102
        assert names["token_ids"] == list(names["hypothesis"].tokens)
    assert examples


@pytest.mark.slow
def test_data_commands_work_as_written(recipe, monkeypatch):
    from espnet_latentasr.bin import convert_data

    places = {f"/corpora/{name}": str(recipe / "corpora/my_set") for name in ("my_set", "native_read")}
    assert run_documented("prepare kaldi", monkeypatch, recipe, places) >= 1
    assert run_documented("validate_data_dir", monkeypatch, recipe) == 1
    convert_data.main(
        ["--from", "kaldi", "--to", "lhotse", "--input", "data/my_set"]
        + ["--output", str(recipe / "lhotse")]
    )
    assert run_documented("convert_data", monkeypatch, recipe, {"DIR": str(recipe / "lhotse")}) == 1
    assert (recipe / "data/train/text").read_text() == (recipe / "data/my_set/text").read_text()


def test_the_doctor_answers(capsys):
    done = subprocess.run(
        [sys.executable, "-m", "espnet_latentasr.bin.doctor"],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "torch" in done.stdout and done.returncode in (0, 1), done.stderr
