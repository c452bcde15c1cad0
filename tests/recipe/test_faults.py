"""Whatever kills, starves or damages a job: the same command again gives what an undisturbed one gives.

Every change that a job makes to its folder is a point where it is killed; LATENTASR_FAULTS=all tries all
of them, else a part of those of the slower jobs (drawn with a fixed seed).  tools/fault_campaign.py does
the like to the whole recipe.  One file: all faults are judged by the same undisturbed runs.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_run_sh import Recipe

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import Busy, exclusive, zip_damage

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("fault_campaign", ROOT / "tools/fault_campaign.py")
campaign = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(campaign)

ALL = os.environ.get("LATENTASR_FAULTS") == "all"
pytestmark = pytest.mark.slow
# How many of a job's changes are tried.
POINTS = {"stage6": 12, "decode": 10, "nbest": 6, "format": 8, "score": 6, "train": 6}
PARTS = sorted(POINTS)


class Workshop:
    """Talks to fault_jobs.py; keeps the results of one undisturbed run of each job."""

    def __init__(self, root: Path) -> None:
        self.root, self.numbers = root, itertools.count()
        self.errors = open(root / "stderr", "w")
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/recipe/fault_jobs.py"), str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._undisturbed: dict[str, tuple[dict, int]] = {}
        self._read("ready")

    def _read(self, what: str) -> str:
        line = self.process.stdout.readline()
        assert line, f"{what}: {(self.root / 'stderr').read_text()[-3000:]}"
        return line

    def do(self, job: str, out: Path, fault: dict | None = None, extra: str = "") -> dict:
        request = {"job": job, "out": str(out), "fault": fault or {}, "extra": extra}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self._read(job))

    def folder(self) -> Path:
        return self.root / f"run{next(self.numbers)}" / "out"

    def undisturbed(self, job: str, extra: str = "") -> tuple[dict, int]:
        """Results of a run without faults, and the number of changes it made to its folder."""
        if (job, extra) not in self._undisturbed:
            out = self.folder()
            done = self.do(job, out, extra=extra)
            assert done["code"] == 0, done["log"]
            self._undisturbed[job, extra] = campaign.snapshot(out), done["changes"]
        return self._undisturbed[job, extra]

    def finished(self, job: str) -> Path:
        """A fresh folder with a finished job."""
        out = self.folder()
        assert self.do(job, out)["code"] == 0
        return out

    def again(self, job: str, out: Path, extra: str = "") -> str:
        """Run once more, undisturbed: all must be there.  Returns the log."""
        done = self.do(job, out, extra=extra)
        assert done["code"] == 0, done["log"]
        odd = campaign.differences(self.undisturbed(job, extra)[0], campaign.snapshot(out))
        assert not odd, f"{job}: {odd}"
        return done["log"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    found = Workshop(tmp_path_factory.mktemp("faults"))
    yield found
    found.process.stdin.close()
    found.process.wait(timeout=60)
    found.errors.close()


def points(job: str, changes: int) -> list[int]:
    every = range(1, changes + 1)
    return list(every) if ALL else sorted(random.Random(job).sample(every, min(POINTS[job], changes)))


@pytest.mark.parametrize("job", PARTS)
def test_two_undisturbed_runs_are_equal(workshop, job):
    first, changes = workshop.undisturbed(job)
    assert changes > 10 and len(first) > 3
    workshop.again(job, workshop.folder())


@pytest.mark.parametrize("job", PARTS)
def test_killed_before_any_of_its_changes(workshop, job):
    for number, at in enumerate(points(job, workshop.undisturbed(job)[1])):
        out, sent = workshop.folder(), (signal.SIGKILL, signal.SIGTERM)[number % 2]
        done = workshop.do(job, out, {"kill": at, "signal": sent})
        assert done["code"] == -sent, f"{job} at {at}: {done['log']}"
        workshop.again(job, out)
        shutil.rmtree(out.parent)


def test_killed_again_and_again(workshop):
    """Every run ends before its 24th change, and still there is an end."""
    out, deaths = workshop.folder(), 0
    while workshop.do("stage6", out, {"kill": 24, "signal": signal.SIGKILL})["code"]:
        deaths += 1
        assert deaths < 10
    assert deaths >= 1
    workshop.again("stage6", out)


@pytest.mark.parametrize("job", PARTS)
def test_killed_in_the_midst_of_a_write(workshop, job):
    largest = max(len(c) for c in workshop.undisturbed(job)[0].values() if isinstance(c, bytes))
    for size in (1, largest // 3) if ALL or job in ("stage6", "score") else (largest // 3,):
        out = workshop.folder()
        assert workshop.do(job, out, {"cut": size})["code"] == -signal.SIGXFSZ
        workshop.again(job, out)


@pytest.mark.parametrize("job", PARTS)
def test_a_full_disk_is_a_clear_error(workshop, job):
    reference = workshop.undisturbed(job)[0]
    largest = max(len(c) for c in reference.values() if isinstance(c, bytes))
    out = workshop.folder()
    done = workshop.do(job, out, {"full": largest // 2})
    assert done["code"] == 1 and "cannot be written" in done["log"], done["log"]
    assert str(out) in done["log"]
    halves = [
        name for name, content in campaign.snapshot(out).items()
        if isinstance(content, bytes) and name in reference and reference[name] != content
        and reference[name].startswith(content) and not name.endswith(".yaml")  # ESPnet's own writing
    ]  # fmt: skip
    assert not halves
    workshop.again(job, out)


@pytest.mark.parametrize("job", [part for part in PARTS if part != "train"])
def test_a_read_only_folder_is_a_clear_error(workshop, job):
    out = workshop.folder()
    out.mkdir(parents=True)
    out.chmod(0o555)
    try:
        done = workshop.do(job, out, {"readonly": True})
    finally:
        out.chmod(0o755)
    assert done["code"] == 1 and "choose another place" in done["log"], done["log"]
    workshop.again(job, out)


# ---- damaged files -----------------------------------------------------------------------------


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(data)


def cut(path: Path, at: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * at)])


@pytest.mark.parametrize("harm", [flip, cut])
@pytest.mark.parametrize("name", ["shard.0000.ark", "shard.0001.ark", "shard.0002.json"])
def test_a_damaged_cache_is_mended_by_stage_6(workshop, name, harm):
    out = workshop.finished("stage6")
    harm(out / name)
    assert "damaged" in workshop.again("stage6", out)


@pytest.fixture(scope="module")
def cache(workshop):
    return workshop.finished("stage6")


def backbone_of(key: str) -> SimpleNamespace:
    """What the cache's reader wants to know of a recogniser."""
    import torch

    fingerprint, dtype, _ = key.rsplit("/", 2)
    return SimpleNamespace(
        fingerprint=fingerprint, embedding_table=SimpleNamespace(dtype=getattr(torch, dtype))
    )


def another_score(path: Path) -> None:
    path.write_text(path.read_text().replace(" ", " 7", 1))


@pytest.mark.parametrize(
    "name, harm, message",
    [
        ("shard.0001.ark", flip, "damaged matrix"),
        ("shard.0001.ark", cut, "damaged, .* bytes expected"),
        ("shard.0001.json", flip, "damaged"),
        ("baseline", another_score, "stage 6 found"),
        ("shard.0001.json", Path.unlink, "damaged"),
    ],
)
def test_training_refuses_a_damaged_cache(cache, tmp_path, name, harm, message):
    from espnet_latentasr.decode.baseline import check_cache

    out = tmp_path / "cache"
    shutil.copytree(cache, out)
    key = (out / "cache_key").read_text().strip()
    check_cache(out, key)
    harm(out / name)
    with pytest.raises(DataError, match=f"{message}.*run stage 6 again"):
        check_cache(out, key)


def test_decoding_encodes_again_what_is_damaged(workshop, cache, tmp_path, caplog):
    """And what has no checksum yet is read, its archive's size being right."""
    from espnet_latentasr.data.audio import read_audio
    from espnet_latentasr.decode.encoder_cache import EncoderCache

    out = tmp_path / "cache"
    shutil.copytree(cache, out)
    backbone = backbone_of((out / "cache_key").read_text().strip())
    tones = workshop.root / "dump/tones"
    clips = {utt_id: read_audio(tones / f"{utt_id}.wav", utt_id) for utt_id in ("utt0", "utt4", "utt5")}
    sound = {utt_id: EncoderCache(out, backbone).read(utt_id, clip) for utt_id, clip in clips.items()}
    assert all(entry.ndim == 2 for entry in sound.values())
    index = json.loads((out / "shard.0001.json").read_text())
    place = int(index["utterances"]["utt4"]["ark"].rpartition(":")[2]) + 40
    data = bytearray((out / "shard.0001.ark").read_bytes())
    data[place] ^= 1
    (out / "shard.0001.ark").write_bytes(data)
    found = EncoderCache(out, backbone)
    assert [found.read(u, clip) is None for u, clip in clips.items()] == [False, True, False]
    assert found.read("utt4", clips["utt4"]) is None
    assert caplog.text.count("a matrix does not hold") == 1
    for entry in index["utterances"].values():  # as they were before there were checksums
        del entry["crc32"], entry["length"]
    del index["crc32"]
    (out / "shard.0001.json").write_text(json.dumps(index))
    data[place] ^= 1
    (out / "shard.0001.ark").write_bytes(data)
    assert (EncoderCache(out, backbone).read("utt4", clips["utt4"]) == sound["utt4"]).all()
    (out / "shard.0001.ark").write_bytes(data[:-1])
    assert EncoderCache(out, backbone).read("utt4", clips["utt4"]) is None


# ---- training ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted(workshop):
    """A training of three epochs, killed in its third; with all three epochs' parameters kept."""
    extra = "--keep_nbest_models 3"
    changes = workshop.undisturbed("train", extra)[1]
    out = workshop.folder()
    workshop.do("train", out, {"kill": int(changes * 0.7)}, extra)
    assert (out / "checkpoint.previous.pth").is_file() and (out / "1epoch.pth").is_file()
    return out, extra


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "names, harm, says",
    [
        (["checkpoint.pth"], cut, "going back by an epoch"),
        (["checkpoint.pth"], flip, ""),
        (["checkpoint.pth", "checkpoint.previous.pth"], cut, "training begins anew"),
        (["2epoch.pth"], cut, ""),
        (["latest.pth", "valid.ce.best.pth"], remove, ""),
    ],
)
def test_a_damaged_training_ends_with_equal_weights(workshop, interrupted, names, harm, says):
    origin, extra = interrupted
    out = workshop.folder()
    shutil.copytree(origin, out, symlinks=True)
    for name in names:
        harm(out / name)
    assert says in workshop.again("train", out, extra)


def test_a_damaged_epoch_among_the_best_is_named(workshop, interrupted):
    origin, extra = interrupted
    out = workshop.folder()
    shutil.copytree(origin, out, symlinks=True)
    cut(out / "1epoch.pth")
    done = workshop.do("train", out, extra=extra)
    assert done["code"] == 1 and "1epoch.pth: damaged" in done["log"] and "to train anew" in done["log"]
    (out / "checkpoint.pth").unlink()  # the remedy it names
    workshop.again("train", out, extra)


def test_a_training_that_ended_early_is_not_continued(workshop):
    """ESPnet stops for want of progress, but would go on where such a training was killed at its end."""
    extra = "--patience 1 --early_stopping_criterion valid ce max --max_epoch 9"
    content, changes = workshop.undisturbed("train", extra)
    assert content["latest.pth"] == "3epoch.pth", "of nine epochs"
    out = workshop.folder()
    workshop.do("train", out, {"kill": changes - 3}, extra)
    workshop.again("train", out, extra)


def test_the_checksums_of_a_checkpoint(tmp_path, interrupted):
    path = tmp_path / "x.pth"
    shutil.copy(interrupted[0] / "1epoch.pth", path)
    assert zip_damage(path) is None
    with zipfile.ZipFile(path) as archive:
        place = archive.getinfo("archive/data/0").header_offset
    name, extra = struct.unpack("<HH", path.read_bytes()[place + 26 : place + 30])
    flip(path, (place + 30 + name + extra + 0.5) / path.stat().st_size)
    assert "checksum" in zip_damage(path)
    cut(path)
    assert "not a zip file" in zip_damage(path)
    assert "No such file" in zip_damage(tmp_path / "none.pth")


# ---- two at once -------------------------------------------------------------------------------


def test_a_folder_is_one_process_at_a_time(tmp_path):
    """Another is told who is at work; a killed one does not keep it, and its leftovers go."""
    folder, (reader, writer) = tmp_path / "exp", os.pipe()
    folder.mkdir()
    if (pid := os.fork()) == 0:
        with exclusive(folder):
            (folder / ".x.12345678.partial").touch()
            os.write(writer, b"locked")
            time.sleep(60)
        os._exit(0)
    try:
        assert os.read(reader, 10) == b"locked"
        with pytest.raises(Busy, match=f"exp is being written by process {pid} on .*wait for it"):
            with exclusive(folder):
                pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with exclusive(folder):
        assert list(folder.iterdir()) == []


SLOW = """#!{python} -S
import os, sys, time
words = sys.argv[1:]
open("begun." + str(os.getpid()), "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
"""


@pytest.fixture
def recipe(tmp_path):
    made = Recipe(tmp_path)
    made.stub.write_text(SLOW.format(python=sys.executable))
    return made


def begin(recipe: Recipe, *words: str) -> subprocess.Popen:
    """Start run.sh and wait until its first command is at work."""
    before = len(list(recipe.dir.glob("begun.*")))
    process = subprocess.Popen(
        [str(recipe.dir / "run.sh"), "--python", str(recipe.stub), *words],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    limit = time.monotonic() + 60
    while len(list(recipe.dir.glob("begun.*"))) == before and process.poll() is None:
        assert time.monotonic() < limit
        time.sleep(0.02)
    return process


def test_two_runs_of_one_experiment(recipe):
    """Refused at once, named; other experiments run beside it; a killed run is no hindrance."""
    one = ["--stage", "12", "--stop_stage", "12", "--asr_config", "conf/train_latent.yaml"]
    for tag in ("a", "b"):
        (recipe.dir / f"exp/asr_{tag}").mkdir(parents=True)
        (recipe.dir / f"exp/asr_{tag}/valid.ce.best.pth").touch()
    first = begin(recipe, *one, "--asr_tag", "a")
    try:
        second = recipe.run("--python", str(recipe.stub), *one, "--asr_tag", "a")
        assert second.returncode == 1
        assert "run.sh: exp/asr_a is being written by process" in second.stderr
        assert "--asr_tag a" in second.stderr and str(first.pid) in second.stderr
        beside = begin(recipe, *one, "--asr_tag", "b")
        assert beside.poll() is None
        # Its jobs go on without their script: they are at work, so the folder is not free.
        first.kill()
        first.wait()
        third = recipe.run("--python", str(recipe.stub), *one, "--asr_tag", "a")
        assert third.returncode == 1 and "now held by" in third.stderr
    finally:
        (recipe.dir / "go").touch()
    assert beside.wait(60) == 0, beside.stdout.read()
    first.stdout.read()  # ends with the last of its jobs
    last = recipe.run("--python", str(recipe.stub), *one, "--asr_tag", "a")
    assert last.returncode == 0, last.stdout + last.stderr


def test_a_second_run_waits_for_what_all_share(recipe):
    only = ["--stage", "6", "--stop_stage", "6", "--asr_config", "conf/train_latent.yaml"]
    first = begin(recipe, *only)
    second = subprocess.Popen(
        [str(recipe.dir / "run.sh"), "--python", str(recipe.stub), *only],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    for line in second.stdout:
        if line.startswith("waiting: exp/backbone is being written by process"):
            break
    else:
        pytest.fail("it did not wait")
    assert len(list(recipe.dir.glob("begun.*"))) == 1
    (recipe.dir / "go").touch()
    assert first.wait(60) == 0 and second.wait(60) == 0, first.stdout.read()


def test_a_small_file_of_the_script_is_whole_or_not_there(tmp_path):
    script = (ROOT / "egs2/latentasr/asr1/run.sh").read_text()
    put = script[script.index("put() {") :].partition("\n}\n")[0] + "\n}\n"
    (tmp_path / ".started").write_text("old\n")
    done = subprocess.run(
        ["bash", "-ec", f"{put} ulimit -f 0; put .started new"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode != 0 and (tmp_path / ".started").read_text() == "old\n"
