"""local/run_sequence.sh in a copy of the recipe, with stand-ins for Python and for local/run_ctc.sh.

The stand-ins note every command and make the files the script looks for; the noted commands are given to
the real commands' parsers.
"""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from espnet_latentasr.config import load_yaml
from espnet_latentasr.sequence.config import MODEL_KEYS, sequence_config

RECIPE = Path(__file__).parents[2] / "egs2/latentasr/asr1"
PYTHON = """#!{python} -S
import json, pathlib, sys
words = sys.argv[1:]
if "run_local" in words[1]:
    words = words[words.index("python3") + 1 :]
name = words[1].rpartition(".")[2]
with open("calls.jsonl", "a") as calls:
    calls.write(json.dumps([name, *words[2:]]) + "\\n")
made = {{"ctc_posteriors": "posteriors.json", "sequence_train": "latest.pth"}}
option = lambda name: words[words.index(name) + 1]
if name in made:
    folder = pathlib.Path(option("--output_dir"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / made[name]).touch()
for n in [n for n, word in enumerate(words) if word == "--job"]:
    folder = pathlib.Path(words[n + 3])
    folder.mkdir(parents=True)
    (folder / "text").touch()
if "_seed13" in " ".join(words):
    sys.exit("killed")
if name == "ctc_variance":
    folder = pathlib.Path(option("--out"))
    folder.mkdir(parents=True)
    (folder / "ratios.md").touch()
"""
RUN_CTC = """#!/bin/bash
echo "[\\"run_ctc\\", \\"$*\\"]" >>calls.jsonl
case "$*" in *"asr_tag ctc_early"*) touch exp/ctc_early/3epoch.pth exp/ctc_early/config.yaml ;; esac
"""


class Recipe:
    def __init__(self, root: Path) -> None:
        self.dir = root
        (root / "local").mkdir()
        shutil.copy(RECIPE / "local/run_sequence.sh", root / "local")
        shutil.copytree(RECIPE / "conf", root / "conf")
        (root / "bin").mkdir()
        for path, text in (
            ("bin/python3", PYTHON.format(python=sys.executable)),
            ("local/run_ctc.sh", RUN_CTC),
        ):
            (root / path).write_text(text)
            (root / path).chmod(0o755)
        (root / "path.sh").write_text("PATH=$PWD/bin:$PATH\n")
        (root / "cmd.sh").write_text("cuda_cmd='python3 -m espnet_latentasr.bin.run_local'\n")
        ids = [f"u{n:02d}" for n in range(10)]
        tables = {
            "exp/ctc_stats/train/speech_shape": "9,128",
            "exp/backbone/cache/activation_8345/audio_embeds.scp": "x.ark:3",
            "dump/raw/activation_8345/text": "a b",
        }
        for path, value in tables.items():
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text("".join(f"{utt} {value}\n" for utt in ids))
        (root / "exp/ctc/subwords").mkdir(parents=True)
        (root / "exp/ctc/valid.cer_ctc.best.pth").touch()

    def run(self, *words: str) -> subprocess.CompletedProcess:
        (self.dir / "calls.jsonl").unlink(missing_ok=True)
        command = [str(self.dir / "local/run_sequence.sh"), *words]
        return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.dir / "calls.jsonl").read_text().splitlines()]


@pytest.fixture
def recipe(tmp_path):
    return Recipe(tmp_path)


SMALL = ("--num_sequence", "4", "--methods", "mwer_nbest raft_oracle", "--seeds", "1 2", "--jobs", "2")


def test_everything_once_and_then_tables_only(recipe):
    done = recipe.run(*SMALL, "--sequence_args", "--max_epoch 1")
    assert done.returncode == 0, done.stdout + done.stderr
    calls = recipe.calls()
    names = [call[0] for call in calls]
    counted = {name: names.count(name) for name in names}
    assert counted == {
        "run_ctc": 1, "ctc_greedy": 2, "ctc_posteriors": 2, "sequence_gap": 1, "sequence_train": 8,
        "sequence_report": 1, "ctc_variance": 4,
    }  # fmt: skip
    assert names.index("sequence_gap") < names.index("sequence_train"), "the gap is measured first"
    for name, *words in calls:
        if name not in ("run_ctc", "sequence_train"):
            importlib.import_module(f"espnet_latentasr.bin.{name}").get_parser().parse_args(words)
    assert [call.count("--job") for call in calls if call[0] == "ctc_greedy"] == [2, 8]
    trainings = [words for name, *words in calls if name == "sequence_train"]
    assert {w[w.index("--output_dir") + 1] for w in trainings} == {
        f"exp/sequence/default/{c}_{m}_seed{s}"
        for c in ("early", "converged") for m in ("mwer_nbest", "raft_oracle") for s in (1, 2)
    }  # fmt: skip
    for words in trainings:
        early = "exp/ctc_early/3epoch.pth" in words
        assert early == ("guards.max_nll=4" in words) and words[-2:] == ["--max_epoch", "1"]
        assert "exp/sequence/default/train/text,text,text" in words
    assert (recipe.dir / "exp/sequence/default/train/ids").read_text().split() == [
        "u02",
        "u04",
        "u07",
        "u09",
    ]
    assert recipe.run(*SMALL, "--sequence_args", "--max_epoch 1").returncode == 0
    assert [call[0] for call in recipe.calls()] == ["sequence_gap", "sequence_report"]
    other = recipe.run(*SMALL, "--sequence_args", "--max_epoch 2")
    assert other.returncode == 1 and "give another --tag" in other.stderr


def test_a_training_that_fails_is_named_and_the_others_are_done(recipe):
    done = recipe.run("--stop_stage", "3", *SMALL, "--seeds", "13 2")
    assert done.returncode == 1
    assert "not trained, see above: early_mwer_nbest_seed13 early_raft_oracle_seed13" in done.stderr
    assert (recipe.dir / "exp/sequence/default/early_raft_oracle_seed2/trained").exists()


def test_wrong_options_are_named(recipe):
    for words, message in (
        (["--checkpoints", "late"], "--checkpoints late: early or converged expected"),
        (["--methods", "mwer_x"], "--methods mwer_x: no conf/tuning/mwer_x.yaml"),
        (["--seeds"], "--seeds needs a value"),
        (["x"], "'x' is not an option"),
    ):
        done = recipe.run(*words)
        assert done.returncode == 2 and message in done.stderr
    done = recipe.run("--stage", "2", "--num_sequence", "11")
    assert done.returncode == 2 and "was trained on 10 utterances" in done.stderr


@pytest.mark.parametrize(
    "path", sorted((RECIPE / "conf/tuning").glob("mwer_*.yaml")), ids=lambda p: p.stem
)
@pytest.mark.parametrize(
    "other", sorted((RECIPE / "conf/tuning").glob("raft_*.yaml")), ids=lambda p: p.stem
)
def test_configurations_build_and_differ_in_the_loss_alone(path, other):
    one, two = load_yaml(path), load_yaml(other)
    kinds = sequence_config(one.pop("sequence_conf")), sequence_config(two.pop("sequence_conf"))
    assert [kind.objective for kind in kinds] == ["mwer", "raft"] and kinds[0].guards == kinds[1].guards
    assert one == two and not set(one) & set(MODEL_KEYS)
