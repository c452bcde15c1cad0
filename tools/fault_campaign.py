#!/usr/bin/env python3
"""Kill, starve and damage a small run of the recipe many times, and count what is lost.

    tools/venv/bin/python tools/fault_campaign.py --work faults --out faults.csv --kills 30

Every injection is followed by the same command again, until it finishes; then all results must be those
of a run that nothing disturbed, byte by byte (recorded wall-clock times aside), and weights equal.  Ways
to fail:

    kill-tree, kill-script, term   SIGKILL to everything, to run.sh alone, SIGTERM, at random times
    full                           a file system that is too small, enlarged after each failure (root)
    readonly                       a folder that may not be written (chattr +i; root)
    damage                         a truncated or changed checkpoint, cache or index
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = Path("egs2/latentasr/asr1")
OPTIONS = [
    *("--scale", "0.02", "--num_activation", "16", "--test_sets", "test_text", "--noisy_test_sets", ""),
    *("--snrs", "0", "--asr_config", "conf/train_latent.yaml", "--nj", "1", "--inference_nj", "2"),
    *("--inference_config", "conf/decode_frozen.yaml conf/decode_latent.yaml"),
    *("--asr_args", "--max_epoch 2 --num_workers 0 --batch_size 4"),
]
EXPERIMENT = "exp/asr_train_latent_max_epoch_2_num_workers_0_batch_size_4"
# No results: logs, locks, journals of unfinished work; report.html, which draws times, is compared by the
# tables it is made of.
IGNORED = re.compile(
    r"(^|/)(\.[^/]*\.(lock|partial)|\.lock|\.[a-z_]*journal\.jsonl|log|[^/]*\.log|latency[^/]*"
    r"|report\.html|score_jobs\.tsv)(/|$)"
)
# Wall-clock times, and hashes over the times at which files were made.
TIMES = [
    (re.compile(rb'"seconds": (\{[^}]*\}|[0-9.e+-]+)'), b'"seconds": T'),
    (re.compile(rb"- date: [^\n]*|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{5,8}(\.[0-9]+)?"), b"T"),
    (re.compile(rb'"(data|source_sha256)": "[0-9a-f]+"'), b'"data": H'),
]
TIMED_COLUMN = re.compile(r"\(ms\)|RTF|overhead %|paired ratio")


def without_times(name: str, data: bytes) -> bytes:
    """A file's content with wall-clock times, and columns computed from them, blanked."""
    for pattern, instead in TIMES:
        data = pattern.sub(instead, data)
    mark = {".md": "|", ".csv": ","}.get(Path(name).suffix)
    if mark is None or not TIMED_COLUMN.search(text := data.decode("utf-8", "replace")):
        return data
    lines, timed = [], []
    for line in text.split("\n"):
        cells = line.split(mark)
        if TIMED_COLUMN.search(line) and len(cells) > 3:
            timed = [n for n, cell in enumerate(cells) if TIMED_COLUMN.search(cell)]
        elif len(cells) > max(timed, default=0) + 1:
            cells = ["" if n in timed else cell for n, cell in enumerate(cells)]
        else:
            timed = []
        lines.append(mark.join(cells))
    return "\n".join(lines).encode()


def weights(path: Path) -> dict[str, bytes]:
    """The tensors of a checkpoint as raw bytes, without what a clock wrote beside them."""
    with zipfile.ZipFile(path) as archive:
        return {
            name.partition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if "/data/" in name
        }


def snapshot(root: Path) -> dict[str, object]:
    """All results below a folder by name: bytes, a link's target, or a checkpoint's tensors."""
    found: dict[str, object] = {}
    here = str(root).encode()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if IGNORED.search(name):
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.name.startswith("checkpoint") and path.suffix == ".pth":
            found[name] = weights(path)
        elif path.is_file():
            found[name] = without_times(name, path.read_bytes().replace(here, b"HERE"))
    return found


def differences(one: dict[str, object], two: dict[str, object]) -> list[str]:
    """Names that only one has or that are not equal."""
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


# ---- a run of the recipe -----------------------------------------------------------------------


def checkout(root: Path, package: Path) -> Path:
    """A copy of the recipe beside links to package and tools."""
    (root / RECIPE).parent.mkdir(parents=True, exist_ok=True)
    links = {"espnet_latentasr": package, "tools": ROOT / "tools", "setup.py": ROOT / "setup.py"}
    for name, target in links.items():
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    ignored = shutil.ignore_patterns("data", "dump*", "exp*", "downloads", "RESULTS.md", ".*")
    if not (root / RECIPE).exists():
        shutil.copytree(ROOT / RECIPE, root / RECIPE, ignore=ignored)
    return root / RECIPE


def start(recipe: Path, log: Path, *options: str) -> subprocess.Popen:
    with open(log, "ab") as file:
        return subprocess.Popen(
            ["./run.sh", *OPTIONS, *options],
            cwd=recipe,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )


def descendants(pid: int) -> Iterator[int]:
    """A process and all that come from it, however they were grouped."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))


def end(process: subprocess.Popen, how: str) -> None:
    """Kill a run; what ``kill-script`` leaves behind is waited for, as a user would be told to."""
    family = list(descendants(process.pid))
    if how == "term":
        os.killpg(process.pid, signal.SIGTERM)
    elif how == "kill-script":
        os.kill(process.pid, signal.SIGKILL)
    else:
        for pid in family:
            _send(pid, signal.SIGSTOP)  # none may start another meanwhile
        for pid in set(family) | set(descendants(process.pid)):
            _send(pid, signal.SIGKILL)
    process.wait()


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


class Campaign:
    """Counts injections and losses, and writes them as they come."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.work, self.random = args.work, random.Random(args.seed)
        self.rows: list[dict[str, object]] = []
        self.out, self.args = args.out, args
        self.work.mkdir(parents=True, exist_ok=True)
        # All run at one place, for the hash of a configuration covers the recogniser's path.
        self.place = self.work / "run"
        # Its own copy: nobody's edits change the code between two runs.
        self.package = self.work / "espnet_latentasr"
        if not self.package.exists():
            shutil.copytree(ROOT / "espnet_latentasr", self.package)

    def note(self, kind: str, where: str, outcome: str, lost: bool) -> None:
        self.rows.append({"kind": kind, "where": where, "outcome": outcome, "lost": int(lost)})
        print(f"{len(self.rows):4d} {kind:12s} {where}: {outcome}{' LOST' if lost else ''}", flush=True)
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, ["kind", "where", "outcome", "lost"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        partial = self.out.with_name(f".{self.out.name}.partial")
        partial.write_text(buffer.getvalue())
        os.replace(partial, self.out)

    def results(self, recipe: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for name in ("data", "dump", "exp"):
            if (recipe / name).is_dir():
                below = snapshot(recipe / name)
                found |= {f"{name}/{key}": value for key, value in below.items()}
        if (recipe / "RESULTS.md").is_file():
            found["RESULTS.md"] = without_times("RESULTS.md", (recipe / "RESULTS.md").read_bytes())
        return found

    def settle(self, recipe: Path, log: Path, options: tuple[str, ...] = ()) -> int:
        """Run until it ends; while jobs of a killed run are still at work, wait as the message says."""
        for _ in range(60):
            code = start(recipe, log, *options).wait()
            if code == 0 or "is being written by" not in tail(log):
                return code
            time.sleep(5)
        return code

    def compare(self, recipe: Path) -> list[str]:
        return differences(self.reference, self.results(recipe))

    def undisturbed(self) -> None:
        kept, log = self.work / "undisturbed", self.work / "undisturbed.log"
        began = time.time()
        if not kept.exists():
            if start(checkout(self.place, self.package), log).wait() != 0:
                sys.exit(f"the undisturbed run fails:\n{tail(log)}")
            self.place.rename(kept)
        self.reference = self.results(kept / RECIPE)
        print(f"undisturbed: {time.time() - began:.0f} s, {len(self.reference)} files", flush=True)

    def stage_of(self, log: Path) -> str:
        found = re.findall(r"Stage (\d+): ", log.read_text(errors="replace"))
        return f"stage {found[-1]}" if found else "before stage 1"

    def kills(self, number: int) -> None:
        ways, run, done = ("kill-tree", "kill-script", "term"), 0, 0
        while done < number:
            run += 1
            recipe = checkout(self.place, self.package)
            log, pending = self.work / f"killed{run}.log", []
            code = None
            while code is None:
                process = start(recipe, log)
                left = number - done - len(pending)
                limit = time.time() + self.random.uniform(1, self.args.longest)
                while process.poll() is None and (left == 0 or time.time() < limit):
                    time.sleep(0.05)
                if process.poll() is None:
                    how = ways[(done + len(pending)) % len(ways)]
                    pending.append((how, self.stage_of(log)))
                    end(process, how)
                elif process.returncode and "is being written by" in tail(log):
                    time.sleep(2)  # jobs of a run whose script was killed are still at work
                else:
                    code = process.returncode
            odd = self.compare(recipe) if code == 0 else [tail(log)]
            for how, where in pending:
                self.note(how, where, f"different: {odd[:3]}" if odd else "identical", bool(odd))
            done += len(pending)
            if odd:
                self.place.rename(self.work / f"lost{run}")
            else:
                shutil.rmtree(self.place)

    def full(self, step: int) -> None:
        """A file system that holds stage 1, and grows by ``step`` KB after each failure."""
        mount, log = self.place, self.work / "full.log"
        recipe = self.work / "undisturbed" / RECIPE
        mount.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)

        def size(kilobytes: int, how: str = "remount,") -> int:
            words = ["mount", "-t", "tmpfs", "-o", f"{how}size={kilobytes}k", "tmpfs", str(mount)]
            return subprocess.run(words, check=False).returncode

        if size(1_000_000, ""):
            print("no file system can be mounted here: 'full' is left out")
            return
        try:
            target, pending = checkout(mount, self.package), []
            for name in ("downloads", "data/activation_pool", "data/valid", "data/test_text"):
                if (recipe / name).exists():
                    shutil.copytree(recipe / name, target / name)
            for path in (recipe / "data").iterdir():
                if path.is_file():
                    shutil.copy2(path, target / "data")
            used = shutil.disk_usage(mount).used // 1024 + step
            size(used)
            while (code := start(target, log).wait()) != 0 and len(pending) < 100:
                said = re.search(r"[Nn]o space left on device|cannot be written", tail(log, 40))
                pending.append((f"{self.stage_of(log)}, {used} KB", "" if said else tail(log, 3)))
                used += step
                size(used)
            odd = self.compare(target) if code == 0 else [tail(log)]
            for where, unclear in pending:
                text = f"{unclear} {odd[:3]}" if unclear or odd else "clear error, then identical"
                self.note("full", where, text, bool(odd or unclear))
        finally:
            subprocess.run(["umount", str(mount)], check=False)
            mount.rmdir()

    def copy(self) -> Path:
        """A finished run to do harm to; times of change are the original's."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.work / "undisturbed", self.place, symlinks=True)
        return self.place / RECIPE

    def readonly(self) -> None:
        for place, options in (
            ("exp/backbone/cache/activation_16", ("--stage", "6", "--stop_stage", "6")),
            (EXPERIMENT, ("--stage", "11", "--stop_stage", "13")),
            ("dump/raw/test_text", ("--stage", "3", "--stop_stage", "3")),
        ):
            if not re.search(self.args.only, place):
                continue
            recipe, log = self.copy(), self.work / "protected.log"
            log.unlink(missing_ok=True)
            if place == EXPERIMENT:
                (recipe / EXPERIMENT / ".finished").unlink()
            if subprocess.run(["chattr", "+i", str(recipe / place)], check=False).returncode:
                print("chattr +i is not possible here: 'readonly' is left out")
                return
            try:
                code = start(recipe, log, *options).wait()
            finally:
                subprocess.run(["chattr", "-i", str(recipe / place)], check=True)
            said = re.search(r"not permitted|Permission denied|cannot be written", tail(log, 40))
            clear = code != 0 and said
            code = self.settle(recipe, log, options)
            odd = self.compare(recipe) if code == 0 else [tail(log)]
            text = "clear error, then identical" if clear and not odd else f"{tail(log, 3)} {odd[:3]}"
            self.note("readonly", place, text, bool(odd) or not clear)

    def damage(self) -> None:
        cache = "exp/backbone/cache/activation_16"
        for place, how, stage in (
            (f"{cache}/shard.0000.ark", "cut", 6),
            (f"{cache}/shard.0000.ark", "flip", 6),
            (f"{cache}/shard.0000.json", "cut", 6),
            (f"{cache}/baseline", "cut", 6),
            (f"{EXPERIMENT}/checkpoint.pth", "cut", 11),
            (f"{EXPERIMENT}/checkpoint.pth", "flip", 11),
            (f"{EXPERIMENT}/2epoch.pth", "cut", 11),
            (f"{EXPERIMENT}/latest.pth", "remove", 11),
            (f"{EXPERIMENT}/decode_latent/test_text/logdir/output.1/done.json", "cut", 12),
            (f"{EXPERIMENT}/decode_latent/test_text/text", "cut", 12),
            ("exp/stats/train/speech_states_shape", "cut", 10),
        ):
            if not re.search(self.args.only, f"{place} {how}"):
                continue
            recipe, log = self.copy(), self.work / "damaged.log"
            log.unlink(missing_ok=True)
            path = recipe / place
            if how == "remove":
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                if how == "cut":
                    del data[len(data) // 2 :]
                else:
                    data[len(data) // 2] ^= 0x10
                path.write_bytes(data)
            if stage == 11:  # a training that had not yet been found finished
                (recipe / EXPERIMENT / ".finished").unlink()
            if stage == 10:
                (recipe / "exp/stats/.finished").unlink()
            code = self.settle(recipe, log, ("--stage", str(stage)))
            odd = self.compare(recipe) if code == 0 else [tail(log)]
            text = f"different: {odd[:3]}" if odd else "identical"
            self.note("damage", f"{Path(place).name} {how}", text, bool(odd))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for copies")
    parser.add_argument("--out", type=Path, required=True, help="CSV, one row an injection")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--longest", type=float, default=30, help="seconds until a kill, at most")
    parser.add_argument("--kinds", nargs="+", default=["kills", "full", "readonly", "damage"])
    parser.add_argument("--step_kb", type=int, default=500, help="what the small file system grows by")
    parser.add_argument("--only", default="", help="damages and protected places, a regular expression")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    campaign = Campaign(args)
    campaign.undisturbed()
    if "kills" in args.kinds:
        campaign.kills(args.kills)
    if "full" in args.kinds:
        campaign.full(args.step_kb)
    if "readonly" in args.kinds:
        campaign.readonly()
    if "damage" in args.kinds:
        campaign.damage()
    counts = Counter(row["kind"] for row in campaign.rows)
    lost = sum(row["lost"] for row in campaign.rows)
    print(f"{len(campaign.rows)} injections ({dict(counts)}), {lost} lost")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
