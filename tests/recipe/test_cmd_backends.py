"""run.sh through every back end of cmd.sh, with stand-ins for the schedulers on this machine.

A stand-in follows Kaldi's calling convention as ``slurm.pl``, ``queue.pl`` and ``ssh.pl`` do: options
are looked up in ``conf/slurm.conf`` or ``conf/queue.conf``, the command is joined to one shell line, and
a job starts in the recipe's folder with ``path.sh`` and nothing of the caller's environment but PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from test_run_sh import Recipe, option

sys.path.insert(0, str(Path(__file__).parents[1] / "decode"))
from small_experiment import write_experiment  # noqa: E402

SCHEDULER = r"""#!{python} -S
import json, os, pathlib, re, subprocess, sys
name = os.path.basename(sys.argv[0])[:-3]
words, options, jobs, variable = sys.argv[1:], {{}}, [1], None
while words[0].startswith("-") or re.fullmatch(r"\w+=\d+(:\d+)?", words[0]):
    word = words.pop(0)
    if word.startswith("-"):
        assert not words[0].startswith("--"), f"{{word}} {{words[0]}}: a value expected"
        options[word.lstrip("-").replace("-", "_")] = words.pop(0)
    else:
        variable, first, last = re.fullmatch(r"(\w+)=(\d+):?(\d*)", word).groups()
        jobs = list(range(int(first), int(last or first) + 1))
request = []
if name != "ssh":
    table = {{}}
    for line in pathlib.Path(f"conf/{{name}}.conf").read_text().splitlines():
        if line.startswith("option "):
            key, _, words_of_scheduler = line[7:].partition(" ")
            table[key] = words_of_scheduler
    for key, value in options.items():
        known = table.get(f"{{key}}={{value}}", table.get(f"{{key}}=*"))
        if known is None:
            sys.exit(f"{{name}}.pl: no line for {{key}}={{value}} in conf/{{name}}.conf")
        request += known.replace("$0", value).split()
else:
    assert pathlib.Path(".queue/machines").read_text().split(), "no machines"
log, *command = words
with open("submitted.jsonl", "a") as file:
    row = dict(name=name, options=options, request=request, jobs=jobs, command=command, log=log)
    file.write(json.dumps(row) + "\n")
# Words without blanks go to the shell as they are.
quote = lambda w: w if re.fullmatch(r"\S+", w) else f"'{{w}}'" if '"' in w else f'"{{w}}"'
line, failed = " ".join(map(quote, command)), []
environment = {{"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}}
for job in reversed(jobs):
    numbered = lambda text: text.replace(variable, str(job)) if variable else text
    place = numbered(log)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if str(job) in os.environ.get("STAND_IN_LOSES", "").split():
        failed.append(place)
        continue
    nodes = f"export SLURM_JOB_NUM_NODES={{options.get('num_nodes', 1)}}\n"
    script = f"cd {{os.getcwd()}}\n. ./path.sh\n{{nodes}}exec >{{place}} 2>&1\n{{numbered(line)}}\n"
    if subprocess.run(["bash", "-c", script], env=environment, cwd="/").returncode:
        failed.append(place)
if failed:
    sys.exit(f"{{name}}.pl: {{len(failed)}} of {{len(jobs)}} jobs failed, logs: {{failed}}")
"""
# One process for each node, as Slurm numbers them.
SRUN = """#!{python} -S
import os, subprocess, sys
nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
assert sys.argv[1] == "--export=ALL"
step = {{"SLURM_NTASKS": nodes, "SLURM_STEP_NUM_NODES": nodes, "SLURM_STEP_NODELIST": "node[1-2]"}}
running = []
for rank in range(nodes):
    own = step | {{"SLURM_PROCID": rank, "SLURM_NODEID": rank, "SLURM_LOCALID": 0}}
    environment = os.environ | {{key: str(value) for key, value in own.items()}}
    running.append(subprocess.Popen(sys.argv[2:], env=environment))
sys.exit(max(process.wait() for process in running))
"""
# Decoding job 2 fails when it is started for the first time.
FAILS_ONCE = """#!/bin/bash
if [[ "$*" == *latentasr_inference*"--job 2"* && ! -e failed_once ]]; then
    touch failed_once
    exit 9
fi
exec python3 "$@"
"""
SET = "--corpus none --test_sets tones --noisy_test_sets".split() + ["", "--train_snrs", ""]
STAGE_12 = [
    *("--stage", "12", "--stop_stage", "12", "--decode_valid", "false", "--inference_nj", "2"),
    *("--asr_config", "conf/train_latent.yaml"),
    *("--inference_config", "conf/latent.yaml conf/frozen.yaml"),
]
BACKENDS = {"slurm": "slurm", "sge": "queue", "ssh": "ssh"}


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def with_stand_ins(root: Path) -> Recipe:
    """A copy of the recipe, stand-ins of all schedulers in ``root/bin``."""
    recipe = Recipe(root)
    (root / "bin").mkdir()
    for name in BACKENDS.values():
        executable(root / f"bin/{name}.pl", SCHEDULER.format(python=sys.executable))
    executable(root / "bin/srun", SRUN.format(python=sys.executable))
    (recipe.dir / ".queue").mkdir()
    (recipe.dir / ".queue/machines").write_text("here\nthere\n")
    return recipe


def run(recipe: Recipe, *words: str, code: int = 0, **env: str) -> str:
    """Run run.sh with the stand-ins on PATH; return all that was printed."""
    places = (recipe.dir.parents[2] / "bin", Path(sys.executable).parent, os.environ["PATH"])
    inherited = {k: v for k, v in os.environ.items() if k != "cmd_backend"}
    done = subprocess.run(
        [str(recipe.dir / "run.sh"), *words],
        cwd="/",
        env={**inherited, "PATH": ":".join(map(str, places)), **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=1800,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def submitted(recipe: Recipe) -> list[dict]:
    """What the stand-ins were asked for since the last call."""
    path = recipe.dir / "submitted.jsonl"
    rows = [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return rows


def write_set(folder: Path, clips, text: str = "turn on the light") -> None:
    """A formatted set of the clips, all with one transcript."""
    from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table

    folder.mkdir(parents=True)
    wav = {f"utt{n}": str(folder / f"utt{n}.wav") for n in range(len(clips))}
    for path, clip in zip(wav.values(), clips):
        soundfile.write(path, clip, 16000, "PCM_16")
    same, language = {u: u for u in wav}, dict.fromkeys(wav, "en")
    KaldiDir(folder, wav, dict.fromkeys(wav, text), same, language).save(folder)
    write_kaldi_table(folder / "utt2num_samples", {u: str(len(c)) for u, c in zip(wav, clips)})


# ---- decoding ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_backbone_dir, clips):
    """The recipe behind stage 11, on six tones."""
    root = tmp_path_factory.mktemp("backends")
    recipe = with_stand_ins(root)
    made = write_experiment(root / "made", tiny_backbone_dir, clips, latent={"scale": {"init": 2.0}})
    shutil.copytree(made.backbone_dir, recipe.dir / "exp/backbone")
    shutil.copytree(made.config.parent, recipe.dir / "exp/asr_train_latent")
    write_set(recipe.dir / "dump/raw/tones", clips[:6])
    short = "tokens_per_second: 1.0\ntokens_extra: 4\nbatch_size: 2\n"
    threshold = "halting: {kind: threshold, theta: 0.0}\n"
    (recipe.dir / "conf/latent.yaml").write_text(threshold + short)
    (recipe.dir / "conf/frozen.yaml").write_text("halting: {kind: never}\n" + short)
    return recipe


def results(recipe: Recipe) -> dict[str, object]:
    """Every file of the joined decodings, records without what a clock measured."""
    found: dict[str, object] = {}
    for path in sorted(recipe.dir.glob("exp/asr_train_latent/*/tones/*")):
        if path.suffix == ".jsonl":
            rows = map(json.loads, path.read_text().splitlines())
            found[str(path)] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
        elif path.is_file():
            found[str(path)] = path.read_text()
    assert len(found) == 2 * 7  # four tables, two records, the identity
    for folder in recipe.dir.glob("exp/asr_train_latent/*/"):
        shutil.rmtree(folder)
    return found


@pytest.fixture(scope="module")
def local(trained):
    """What the local back end gives, where one job fails at first."""
    flaky = executable(trained.dir / "python_flaky", FAILS_ONCE)
    said = run(trained, *SET, *STAGE_12, "--python", str(flaky))
    assert "logdir/asr_inference.2.log: failed (code 9), try 1 of 2; this job alone" in said
    logs = {path.name for path in trained.dir.glob("exp/asr_train_latent/logdir/asr_inference.*")}
    assert logs == {"asr_inference.1.log", "asr_inference.2.log", "asr_inference.2.log.try1"}
    assert submitted(trained) == []
    return results(trained)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["slurm", "ssh"])
def test_decoding_is_the_same_on_every_back_end(trained, local, backend):
    run(trained, *SET, *STAGE_12, cmd_backend=backend)
    (row,) = submitted(trained)
    assert (row["name"], row["jobs"], row["options"]) == (BACKENDS[backend], [1, 2], {})
    assert results(trained) == local


@pytest.mark.slow
def test_a_lost_job_is_made_up_for_by_the_same_command(trained, local):
    """Job 2 is lost with its machine: the others' work is kept, and the rerun decodes its share only."""
    logs = trained.dir / "exp/asr_train_latent/logdir"
    said = run(trained, *SET, *STAGE_12, code=1, cmd_backend="sge", STAND_IN_LOSES="2")
    assert "queue.pl: 1 of 2 jobs failed" in said and "Stage 12 failed" in said
    assert "tones: 3 utterances decoded in job 1" in (logs / "asr_inference.1.log").read_text()
    marker = trained.dir / "exp/asr_train_latent/latent/tones/logdir/output.1/done.json"
    stamp = marker.stat().st_mtime_ns
    run(trained, *SET, *STAGE_12, cmd_backend="sge")
    first, second = ((logs / f"asr_inference.{n}.log").read_text() for n in (1, 2))
    assert first.count("finished before, left as it is") == 2
    assert "tones: 0 utterances decoded in job 1" in first
    assert "tones: 3 utterances decoded in job 2" in second
    assert marker.stat().st_mtime_ns == stamp
    assert results(trained) == local and len(submitted(trained)) == 2


# ---- several machines --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["local", "ssh"])
def test_several_machines_need_a_scheduler_that_knows_them(tmp_path, backend):
    recipe = with_stand_ins(tmp_path)
    said = run(recipe, "--num_nodes", "2", "--stage", "11", code=2, cmd_backend=backend)
    assert "--num_nodes 2 needs a cluster: cmd_backend=slurm or sge" in said


@pytest.mark.parametrize("backend, starter", [("slurm", "srun --export=ALL"), ("sge", "mpirun -np 2")])
@pytest.mark.parametrize("gpus", [0, 4])
def test_what_the_scheduler_is_asked_for(tmp_path, backend, starter, gpus):
    """ESPnet's own launcher between run.sh and the scheduler; training itself is a stand-in."""
    pytest.importorskip("espnet2", reason="ESPnet is not installed")
    recipe = with_stand_ins(tmp_path)
    for name, behind in (("srun", 3), ("mpirun", 4)):  # srun --export=ALL python3, mpirun -np 2 python3
        text = f'#!/bin/bash\nexec "{recipe.stub}" "${{@:{behind}}}"\n'
        executable(tmp_path / "bin" / name, text)
    python = executable(
        tmp_path / "python",
        f'#!/bin/bash\ncase "$*" in "-m espnet2.bin.launch"*) exec {sys.executable} "$@" ;; esac\n'
        f'exec "{recipe.stub}" "$@"\n',
    )  # fmt: skip
    words = f"--python {python} --stage 10 --stop_stage 11 --num_nodes 2 --ngpu {gpus}".split()
    words += ["--asr_config", "conf/train_latent.yaml", "--asr_args", "--max_epoch 2"]
    run(recipe, *words, cmd_backend=backend)
    stats, training = submitted(recipe)
    assert stats["options"] == {} and "--collect_stats" in stats["command"]
    assert training["log"] == "exp/asr_train_latent_max_epoch_2/train.log"
    expected = {"name": "asr_train_latent_max_epoch_2", "gpu": str(gpus), "num_nodes": "2"}
    assert training["options"] == expected | {"num_threads": str(max(gpus, 1))}
    asked = " ".join(training["request"])
    nodes = {"slurm": "--nodes 2 --ntasks-per-node 1", "sge": "-pe mpi 2"}[backend]
    assert nodes in asked and (str(gpus) in asked) == (gpus > 0)
    command = training["command"]
    assert command[: 2 + (backend == "sge")] == starter.split()
    launcher = {"slurm": "slurm", "sge": "mpi"}[backend]
    for name, value in {
        "--dist_launcher": launcher, "--multiprocessing_distributed": "true", "--max_epoch": "2",
    }.items():  # fmt: skip
        assert option(command, name)[-1] == value
    (place,) = option(command, "--dist_init_method")
    assert place.startswith(f"file://{recipe.dir}/exp/asr_train_latent_max_epoch_2/.dist_init_")
    assert option(command, "--ngpu")[-1] == str(gpus)
    assert option(command, "--dist_backend") == ([] if gpus else ["gloo"])


@pytest.mark.slow
def test_two_machines_train_as_one_process_does(tmp_path, tiny_backbone_dir, clips):
    """Two processes that Slurm's stand-in starts, and the same command line without them."""
    pytest.importorskip("espnet2", reason="ESPnet is not installed")
    import torch

    from espnet_latentasr.bin import freeze_backbone, latentasr_train
    from espnet_latentasr.config import PromptConfig
    from espnet_latentasr.decode.baseline import baseline_pass
    from espnet_latentasr.decode.loading import load_recogniser

    recipe = with_stand_ins(tmp_path)
    exp, raw = recipe.dir / "exp", recipe.dir / "dump/raw"
    freeze_backbone.main(["--name", str(tiny_backbone_dir), "--output_dir", str(exp / "backbone")])
    backbone = load_recogniser(exp / "backbone").recogniser.backbone
    for name in ("activation_8", "valid"):
        write_set(raw / name, clips)  # one transcript: each process has as many tokens as the other
        baseline_pass(backbone, PromptConfig(), raw / name, exp / f"backbone/cache/{name}")
    # Not AdamW, which makes a step of the rounding error of a gradient that is zero.
    train = "--max_epoch 2 --batch_size 4 --num_workers 0 --optim sgd --optim_conf lr=0.3"
    words = ["--corpus", "none", "--train_snrs", "", "--num_activation", "8", "--num_nodes", "2"]
    words += ["--stage", "10", "--stop_stage", "11", "--asr_config", "conf/train_latent.yaml"]
    run(recipe, *words, "--asr_tag", "two", "--asr_args", train, cmd_backend="slurm")
    _, training = submitted(recipe)
    log = (exp / "asr_two/train.log").read_text()
    assert ":0/2]" in log, "rank 0 of two; the other one logs warnings only"
    command = training["command"][5:]  # srun --export=ALL python3 -m MODULE
    alone = [word.replace("asr_two", "asr_one") for word in command[: command.index("--dist_launcher")]]
    alone += ["--multiprocessing_distributed", "false"]
    here = os.getcwd()
    os.chdir(recipe.dir)
    try:
        latentasr_train.main(alone)
    finally:
        os.chdir(here)
    one, two = (torch.load(exp / f"asr_{n}/latest.pth", weights_only=True) for n in ("one", "two"))
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=0, atol=2e-6)
    assert one["method.value_head.linear.weight"].abs().sum() > 1e-4, "it was zero before training"
