"""run.sh in a copy of the recipe: options, and the whole flow with a stand-in for Python.

The stand-in (``--python``) notes every command and makes the files the script itself looks for; the
noted commands are then given to the real commands' parsers.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs2" / "latentasr" / "asr1"
STUB = """#!{python} -S
import json, os, pathlib, sys
words = sys.argv[1:]
with open("calls.jsonl", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
option = lambda name: words[words.index(name) + 1]
name = words[1].rpartition(".")[2] if words[0] == "-m" else "-c"
print("summary of", name)
if name == os.environ.get("STUB_FAILS"):
    sys.exit("line 1\\n" + name + ": the reason")
if name == "prepare":
    sets = "activation_pool valid test_text test_voice " + os.environ.get("STUB_SETS", "")
    for place in sets.split():
        pathlib.Path("data", place).mkdir(parents=True, exist_ok=True)
        pathlib.Path("data", place, "wav.scp").touch()
if name == "latentasr_train":
    folder = pathlib.Path(option("--output_dir"))
    folder.mkdir(parents=True, exist_ok=True)
    if "--collect_stats" not in words:
        (folder / "valid.ce.best.pth").touch()
        (folder / "checkpoint.pth").touch()
"""
NOISY = [f"{name}_snr{snr}" for name in ("test_text", "test_voice") for snr in (0, 5, 10, 20)]


class Recipe:
    """A copy of the recipe that shares the package, with a stand-in for Python."""

    def __init__(self, root: Path) -> None:
        self.dir = root / "egs2" / "latentasr" / "asr1"
        self.dir.mkdir(parents=True)
        for path in RECIPE.glob("*.sh"):
            shutil.copy(path, self.dir)
        shutil.copytree(RECIPE / "conf", self.dir / "conf")
        (self.dir / "local").mkdir()
        for path in (RECIPE / "local").glob("*.sh"):
            shutil.copy(path, self.dir / "local")
        mini = self.dir / "local" / "mini_backbone"
        mini.mkdir()
        for name in ("config.json", "model.safetensors"):
            (mini / name).touch()
        (root / "espnet_latentasr").symlink_to(ROOT / "espnet_latentasr")
        self.stub = root / "stub"
        self.stub.write_text(STUB.format(python=sys.executable))
        self.stub.chmod(0o755)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess:
        """Run run.sh from another folder, with this Python first on PATH."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if k != "cmd_backend"}
        return subprocess.run(
            [str(self.dir / "run.sh"), *words],
            cwd="/",
            env={**inherited, "PATH": path, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def flow(self, *words: str, code: int = 0, **env: str) -> str:
        """Run with the stand-in; return all that was printed."""
        (self.dir / "calls.jsonl").unlink(missing_ok=True)
        done = self.run("--python", str(self.stub), *words, **env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def calls(self, name: str) -> list[list[str]]:
        """Arguments of every call of one command."""
        path = self.dir / "calls.jsonl"
        rows = [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []
        return [row[2:] for row in rows if row[1] == f"espnet_latentasr.bin.{name}"]


@pytest.fixture
def recipe(tmp_path):
    return Recipe(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The recipe after a run of all stages; tests must leave it as it is."""
    recipe = Recipe(tmp_path_factory.mktemp("whole"))
    recipe.output = recipe.flow("--nj", "3", STUB_SETS="test_human")
    return recipe


def option(words: list[str], name: str) -> list[str]:
    """All values of an option."""
    return [words[n + 1] for n, word in enumerate(words) if word == name]


# ---- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, message",
    [
        (["--no_such", "1"], "unknown option '--no_such'"),
        (["--PATH", "x"], "unknown option '--PATH'"),
        (["--option_names", "x"], "unknown option '--option_names'"),
        (["--stage"], "option '--stage' needs a value"),
        (["--stage=3"], "two words"),
        (["--skip-train", "yes"], "--skip-train 'yes': true or false expected"),
        (["--resume", ""], "true or false expected"),
        (["--stage", "x"], "--stage 'x': a whole number expected"),
        (["--nj", "0"], "--nj '0': at least 1 expected"),
        (["--scale", "-1"], "--scale '-1': a number expected"),
        (["--stage", "99", "leftover"], "'leftover' is not an option"),
        (["--asr_tag", "mine"], "--asr_tag names one experiment, but there are 2"),
        (["--corpus", "nosuch"], "--corpus 'nosuch' is not supported yet"),
        (["--corpus", "../x"], "(made by the recipe), 'my', 'paper', 'speechocean762', and 'none'"),
        (["--corpus", "my"], "--corpus my: --train_dir is empty"),
        (["--train_dir", "/data"], "--train_dir and --valid_dir are for --corpus my"),
        (["--corpus_src", "/copy"], "--corpus_src: --corpus mini has no copy to read"),
    ],
)
def test_usage_errors(words, message):
    done = subprocess.run([RECIPE / "run.sh", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr and "--help" in done.stderr
    assert ("No positional arguments are required" in done.stdout) == (words[-1] == "leftover")


def test_help_explains_every_option_and_stage():
    done = subprocess.run([RECIPE / "run.sh", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    script = (RECIPE / "run.sh").read_text().partition("# options begin")[2]
    for line in script.partition("# options end")[0].splitlines()[1:]:
        if "=" in line:
            name, _, comment = line.partition("=")
            text = comment.rpartition("# ")[2]
            assert f"\n  --{name}  " in done.stdout and f"\n        {text}\n" in done.stdout
    for stage in (*range(1, 7), "7-9", *range(10, 14)):
        assert f"\n  {stage:>2}  " in done.stdout or f"\n   {stage}  " in done.stdout


def test_nothing_to_do(recipe):
    """Names with dashes are the same; no stage runs, and nothing is written."""
    before = {path.name for path in recipe.dir.iterdir()}
    done = recipe.run("--stage", "99", "--stop-stage", "0", "--skip-train", "true")
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout and "[elapsed=" in done.stdout and "Stage" not in done.stdout
    assert f"python {sys.version.split()[0]}" in done.stdout
    assert {path.name for path in recipe.dir.iterdir()} == before


@pytest.mark.parametrize("name", ["asr_config", "inference_config"])
def test_missing_configuration(recipe, name):
    done = recipe.run(f"--{name}", "conf/no_such.yaml", "--stage", "12")
    assert done.returncode == 1
    assert f"--{name}: no such file: conf/no_such.yaml" in done.stderr


# ---- the whole flow ----------------------------------------------------------------------------


def test_data_stages(whole):
    assert whole.calls("prepare") == [
        "mini --out data --downloads downloads --scale 1.0 --nj 3 --sets".split()
        + "activation_pool valid test_text test_voice test_human".split()
    ]
    sets = [words[0] for words in whole.calls("validate_data_dir")]
    plain = ["test_text", "test_voice", "test_human"]
    assert sets == [f"data/{name}" for name in ("activation_pool", "valid", *plain)]
    noise = whole.calls("add_noise")
    assert [option(w, "--mixed_snr") for w in noise[:3]] == [["clean 0 5 10 20"]] * 2 + [[]]
    assert [option(w, "--output_dir")[0] for w in noise] == [
        "data/activation_pool_noisy", "data/valid_noisy", *(f"data/{name}" for name in NOISY)
    ]  # fmt: skip
    assert noise[3] == (
        "--data_dir data/test_text --output_dir data/test_text_snr5 --snr 5 --nj 3 "
        "--skip_unusable false".split()
    )
    formats = whole.calls("format_wav")
    assert [option(w, "--kind")[0] for w in formats] == ["train", "valid", *["test"] * 11]
    assert option(formats[0], "--output_dir") == ["dump/raw/org/activation_pool_noisy"]
    tests = [option(w, "--output_dir")[0] for w in formats[2:]]
    assert tests == [f"dump/raw/{name}" for name in (*plain, *NOISY)]
    filters = whole.calls("filter_length")
    assert [option(w, "--output_dir")[0] for w in filters] == [
        "dump/raw/activation_pool_noisy", "dump/raw/valid_noisy"
    ]  # fmt: skip
    assert whole.calls("sample_activation") == [
        "--data_dir dump/raw/activation_pool_noisy --output_dir dump/raw/activation_500 "
        "--num 500 --seed 42".split()
    ]


def test_training_stages(whole):
    assert whole.calls("train_mini_backbone") == []
    assert whole.calls("freeze_backbone") == [
        "--name local/mini_backbone --output_dir exp/backbone".split()
    ]
    baseline = whole.calls("baseline_pass")
    assert [option(w, "--output_dir")[0] for w in baseline] == [
        "exp/backbone/cache/activation_500", "exp/backbone/cache/valid_noisy"
    ]  # fmt: skip
    assert whole.output.count("nothing to do: no rescoring configuration asks for") == 3
    stats, *trained = whole.calls("latentasr_train")
    assert option(stats, "--collect_stats") == ["true"]
    assert option(stats, "--output_dir") == ["exp/stats"]
    assert option(stats, "--valid_shape_file") == ["dump/raw/valid_noisy/utt2num_samples"]
    assert [option(w, "--output_dir")[0] for w in trained] == [
        "exp/asr_train_latent", "exp/asr_train_latent_paper"
    ]  # fmt: skip
    cache, raw = "exp/backbone/cache/activation_500", "dump/raw/activation_500"
    for words in (stats, *trained):
        assert option(words, "--train_data_path_and_name_and_type") == [
            f"{cache}/audio_embeds.scp,speech_states,kaldi_ark",
            f"{raw}/text,text,text",
            f"{cache}/baseline,baseline,text_float",
            f"{raw}/utt2lang,lang,text",
        ]
    assert option(trained[1], "--train_shape_file") == ["exp/stats/train/speech_states_shape"]
    assert option(trained[1], "--config") == ["conf/train_latent_paper.yaml"]
    assert (whole.dir / "exp/asr_train_latent/train.log").is_file()


def test_evaluation_stages(whole):
    decoded = whole.calls("latentasr_inference")
    assert sorted(option(w, "--job")[0] for w in decoded) == ["1", "1", "2", "2"]
    for words in decoded:
        assert len(option(words, "--test_set")) == 12
        assert option(words, "--test_set")[-1] == "valid_noisy"
        assert option(words, "--inference_config") == [
            "conf/decode_frozen.yaml", "conf/decode_latent.yaml", "conf/decode_latent_depths.yaml"
        ]  # fmt: skip
    assert (whole.dir / "exp/asr_train_latent/logdir/asr_inference.2.log").is_file()
    assert len(whole.calls("merge_decode")) == 2
    jobs = [row.split("\t") for row in (whole.dir / "exp/log/score_jobs.tsv").read_text().splitlines()]
    assert len(jobs) == 2 * 3 * 11  # the stand-in decodes nothing, so the valid set has no text
    assert jobs[0] == (
        "--ref dump/raw/test_text/text "
        "--hyp exp/asr_train_latent/decode_frozen/test_text/text "
        "--utt2spk dump/raw/test_text/utt2spk --lang en --unit wer cer --normalizer none "
        "--output_dir exp/asr_train_latent/decode_frozen/test_text".split()
    )
    importlib.import_module("espnet_latentasr.bin.score").get_parser().parse_args(jobs[0])
    assert whole.calls("make_results") == [
        "--expdir exp --output RESULTS.md --dev valid_noisy --families exp --oracle_gap exp/oracle_gap "
        "--sequence exp/sequence --data_root dump/raw".split()
    ]
    assert whole.calls("report")[1] == (
        "--exp exp/asr_train_latent_paper --out exp/asr_train_latent_paper --data_root dump/raw "
        "--dev valid_noisy".split()
    )
    assert whole.output.splitlines()[-1].endswith("s]") and "RESULTS.md" in whole.output


@pytest.mark.parametrize(
    "name",
    "prepare validate_data_dir add_noise format_wav filter_length sample_activation "
    "freeze_backbone baseline_pass latentasr_inference merge_decode make_results report".split(),
)
def test_the_real_commands_understand(whole, name):
    parser = importlib.import_module(f"espnet_latentasr.bin.{name}").get_parser()
    calls = whole.calls(name)
    assert calls
    for words in calls:
        parser.parse_args(words)


def test_rescoring(recipe):
    """Language models that are asked for, lists, scores, and a choice per configuration and set."""
    configs = "conf/decode_mbr_pll.yaml conf/tuning/decode_mbr_ensemble.yaml"
    words = "--test_sets test_text --asr_config conf/train_latent.yaml".split()
    words += ["--noisy_test_sets", ""]
    models = recipe.dir / "exp/asr_train_latent"
    models.mkdir(parents=True)
    (models / "valid.ce.best.pth").touch()
    text = recipe.flow(
        *words, "--stage", "7", "--stop_stage", "9", "--rescore_config", configs, "--causal_lm", "x@abc"
    )
    assert "given: x@abc" in text and text.count("no rescoring configuration asks for") == 1
    made = recipe.calls("train_small_lm")
    assert [option(w, "--kind") for w in made] == [["masked"]]
    assert option(made[0], "--text") == ["data/activation_pool/text"]
    words += ["--rescore_config", configs, "--causal_lm", "x@abc", "--inference_nj", "1"]
    recipe.flow(*words, "--stage", "12", "--stop_stage", "13")
    lists = "exp/asr_train_latent/nbest_decode_frozen/test_text"
    share, merged = recipe.calls("ar_nbest")
    assert option(share, "--samples") == ["16"] and option(share, "--data_dir") == ["dump/raw/test_text"]
    assert merged == f"--merge {lists}/logdir/nbest.1.jsonl --out {lists}/nbest.jsonl".split()
    first, second = recipe.calls("score_nbest")
    assert option(first, "--scorer") == ["pll"] and option(first, "--model") == ["exp/lm/masked"]
    assert option(first, "--nbest") == [f"{lists}/nbest.jsonl"]
    assert option(second, "--model") == ["x"] and option(second, "--revision") == ["abc"]
    assert option(second, "--nbest") == [f"{lists}/nbest.pll.jsonl"]
    chosen = recipe.calls("rescore")
    assert [option(w, "--out") for w in chosen] == [
        ["exp/asr_train_latent/decode_mbr_pll/test_text"],
        ["exp/asr_train_latent/decode_mbr_ensemble/test_text"],
    ]
    assert all(option(w, "--nbest") == [f"{lists}/nbest.ll.jsonl"] for w in chosen)
    jobs = (recipe.dir / "exp/log/score_jobs.tsv").read_text()
    assert "decode_mbr_ensemble/test_text" in jobs
    for name in ("train_small_lm", "ar_nbest", "score_nbest", "rescore"):
        parser = importlib.import_module(f"espnet_latentasr.bin.{name}").get_parser()
        for call in recipe.calls(name) or made:
            parser.parse_args(call)
    text = recipe.flow("--stage", "13", "--rescore_config", "conf/no.yaml", code=1)
    assert "--rescore_config: no such file: conf/no.yaml" in text


# ---- reruns, choices, failures -----------------------------------------------------------------


def test_rerun_keeps_what_is_finished(recipe):
    train = ["--stage", "10", "--stop_stage", "11", "--asr_config", "conf/train_latent.yaml"]
    recipe.flow(*train)
    text = recipe.flow(*train)
    assert recipe.calls("latentasr_train") == []
    assert "exp/stats is complete" in text and "exp/asr_train_latent is trained" in text
    text = recipe.flow(*train, "--seed", "2")
    assert len(recipe.calls("latentasr_train")) == 1
    assert "WARNING: the settings of exp/asr_train_latent have changed" in text
    assert (recipe.dir / "exp/asr_train_latent/train.1.log").is_file()
    recipe.flow(*train, "--overwrite", "true")
    assert len(recipe.calls("latentasr_train")) == 2
    (recipe.dir / "dump/raw/activation_500").mkdir(parents=True)
    (recipe.dir / "dump/raw/activation_500/text").write_text("a other data\n")
    text = recipe.flow(*train, code=1)
    assert "begun with another recogniser, training set or valid set" in text
    assert "Stage 11 failed" in text and "--stage 11" in text


def test_choices(recipe):
    """No recordings, own test set, other recogniser, other arguments, other place."""
    own = recipe.dir / "mine" / "own_set"
    own.mkdir(parents=True)
    words = (
        "--backbone /models/x --backbone_revision abc --backbone_dtype bfloat16 --test_dirs mine/own_set "
        "--asr_config conf/train_latent.yaml --asr_args|--max_epoch 2|--noisy_test_sets own_set|"
        "--snrs 5 --num_activation 9 --expdir exp/trial --skip_eval true --ngpu 2"
    )
    words = [w for part in words.split("|") for w in ([part] if part == "--max_epoch 2"
                                                      else part.split())]  # fmt: skip
    text = recipe.flow(*words, CUDA_VISIBLE_DEVICES="0,1")
    assert "test_human is left out" in text and "skipped (--skip_eval true)" in text
    assert option(recipe.calls("add_noise")[2], "--data_dir") == ["mine/own_set"]
    tests = [option(w, "--output_dir")[0] for w in recipe.calls("format_wav")[2:]]
    assert tests == [f"dump/raw/{n}" for n in ("test_text", "test_voice", "own_set", "own_set_snr5")]
    assert recipe.calls("freeze_backbone") == [
        "--name /models/x --revision abc --dtype bfloat16 --output_dir exp/trial/backbone".split()
    ]
    train = recipe.calls("latentasr_train")[1]
    assert option(train, "--output_dir") == ["exp/trial/asr_train_latent_max_epoch_2"]
    assert option(train, "--ngpu") == ["2"] and option(train, "--max_epoch") == ["2"]
    assert option(train, "--multiprocessing_distributed") == ["true"]
    assert recipe.calls("latentasr_inference") == []


OCEAN = "--corpus speechocean762 --backbone /models/w --asr_config conf/train_latent.yaml".split()


def test_speechocean762(recipe):
    """Its own sets, no noise, a second test set, the language's normaliser, its own places."""
    own = recipe.dir / "mine" / "native_read"
    own.mkdir(parents=True)
    words = "--corpus_src /copy --test_dirs mine/native_read --local_data_opts".split()
    recipe.flow(*OCEAN, *words, "--case lower")
    prepared = recipe.calls("prepare")
    assert prepared == [
        "speechocean762 --out data --downloads downloads --case lower --nj 2 --src /copy".split()
    ]
    importlib.import_module("espnet_latentasr.bin.prepare").get_parser().parse_args(prepared[0])
    sets = [words[0] for words in recipe.calls("validate_data_dir")]
    assert sets == ["data/train", "data/dev", "data/test", "mine/native_read"]
    assert recipe.calls("add_noise") == []
    raw = "dump_speechocean762/raw"
    formats = recipe.calls("format_wav")
    assert [option(w, "--data_dir")[0] for w in formats] == [
        "data/train", "data/dev", "data/test", "mine/native_read"
    ]  # fmt: skip
    assert [option(w, "--output_dir")[0] for w in formats] == [
        f"{raw}/org/train", f"{raw}/org/dev", f"{raw}/test", f"{raw}/native_read"
    ]  # fmt: skip
    assert recipe.calls("sample_activation") == [
        f"--data_dir {raw}/train --output_dir {raw}/activation_500 --num 500 --seed 42".split()
    ]
    decoded = recipe.calls("latentasr_inference")[0]
    assert option(decoded, "--test_set") == ["test", "native_read", "dev"]
    jobs = (recipe.dir / "exp_speechocean762/log/score_jobs.tsv").read_text()
    assert "--normalizer" not in jobs and "--lang\ten" in jobs
    made = recipe.calls("make_results")[0]
    assert option(made, "--output") == ["exp_speechocean762/RESULTS.md"]
    assert option(made, "--dev") == ["dev"]


def test_the_command_line_wins_over_a_corpus(recipe):
    words = ["--noisy_test_sets", "test", "--train_snrs", "10", "--snrs", "0", "--dumpdir", "dump/x"]
    recipe.flow(*OCEAN, "--stop_stage", "3", *words)
    noise = recipe.calls("add_noise")
    assert [option(w, "--mixed_snr") for w in noise] == [["clean 10"], ["clean 10"], []]
    assert option(noise[2], "--snr") == ["0"]
    assert option(recipe.calls("format_wav")[0], "--output_dir") == ["dump/x/raw/org/train_noisy"]
    assert option(recipe.calls("prepare")[0], "--src") == []  # db.sh: downloads


def test_no_backbone_is_guessed_for_a_corpus(recipe):
    text = recipe.flow("--corpus", "speechocean762", code=1)
    assert "which recogniser? give --backbone" in text and recipe.calls("prepare") == []


def test_without_noise(recipe):
    """No SNR: no copies, and no set is called noisy."""
    recipe.flow("--stage", "2", "--stop_stage", "4", "--snrs", "")
    assert recipe.calls("add_noise") == []
    assert [option(w, "--data_dir")[0] for w in recipe.calls("format_wav")] == [
        "data/activation_pool", "data/valid", "data/test_text", "data/test_voice"
    ]  # fmt: skip
    text = recipe.flow("--stage", "2", "--snrs", "", "--test_sets", "test_text valid", code=1)
    assert "'valid' is among the test sets, but it is trained on (--train_set) or chooses" in text


def test_a_set_may_be_valid_and_a_mixed_test_set(recipe):
    only = "--stage 2 --stop_stage 2 --mixed_test_sets valid --noisy_test_sets".split()
    recipe.flow(*only, "")
    assert [option(w, "--output_dir")[0] for w in recipe.calls("add_noise")] == [
        "data/activation_pool_noisy", "data/valid_noisy", "data/valid_mixed"
    ]  # fmt: skip


def test_recogniser_from_scratch(recipe):
    only = ["--stage", "5", "--stop_stage", "5"]
    recipe.flow(*only, "--rebuild_backbone", "true")
    assert recipe.calls("train_mini_backbone") == [
        "--data_dir data/backbone_train --output_dir exp/mini_backbone_rebuilt".split()
    ]
    assert option(recipe.calls("freeze_backbone")[0], "--name") == ["exp/mini_backbone_rebuilt"]
    (recipe.dir / "conf/named.yaml").write_text("backbone_conf: {name: some/model}\n")
    recipe.flow(*only, "--asr_config", "conf/named.yaml", "--corpus", "none")
    assert recipe.calls("freeze_backbone") == [
        "--config conf/named.yaml --output_dir exp/backbone".split()
    ]
    assert "which recogniser?" in recipe.flow(*only, "--corpus", "none", code=1)


@pytest.mark.parametrize(
    "stage, command", [(2, "add_noise"), (6, "baseline_pass"), (13, "make_results")]
)
def test_a_failing_stage_shows_its_log(recipe, stage, command):
    text = recipe.flow("--stage", str(stage), code=1, STUB_FAILS=command)
    assert f"{command}: the reason" in text
    assert f"Stage {stage} failed (code 1)" in text and "Successfully" not in text
    assert f"Stage {stage + 1}:" not in text


def test_missing_model(recipe):
    text = recipe.flow("--stage", "12", code=1)
    assert "exp/asr_train_latent/valid.ce.best.pth: no such model" in text


# ---- path.sh, cmd.sh, local/data.sh ------------------------------------------------------------


def test_path_sh_builds_the_environment_when_none_fits(tmp_path):
    """A python3 without packages and no tools/venv: tools/install.sh is run; its failure ends all."""
    recipe = Recipe(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    install = tools / "install.sh"
    install.write_text("#!/bin/sh\necho building; exit 3\n")
    install.chmod(0o755)
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "python3").write_text("#!/bin/sh\nexit 1\n")
    (empty / "python3").chmod(0o755)
    done = recipe.run("--stage", "99", PATH=f"{empty}:/usr/bin:/bin")
    assert done.returncode == 1
    assert "building" in done.stdout and "tools/install.sh failed" in done.stderr
    # An activated environment will do while tools/venv is unfinished.
    (tools / "venv").mkdir()
    (tools / "venv/latentasr_install").write_text("unfinished\n")
    done = recipe.run("--stage", "99")
    assert done.returncode == 0 and "building" not in done.stdout


@pytest.mark.parametrize(
    "backend, message",
    [("slurm", "needs slurm.pl, which is not on PATH"), ("cloud", "local, slurm, sge or ssh")],
)
def test_cmd_sh(recipe, backend, message):
    done = recipe.run("--stage", "99", cmd_backend=backend)
    assert done.returncode == 1 and message in done.stderr


def test_data_sh(recipe):
    script = str(recipe.dir / "local" / "data.sh")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words, code, message in (
        (["--corpus", "nosuch"], 1, "corpus 'nosuch' is not supported yet"),
        (["--what"], 2, "unknown option '--what'"),
    ):
        done = subprocess.run([script, *words], cwd=recipe.dir, env={**os.environ, "PATH": path},
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        assert done.returncode == code and message in done.stderr
