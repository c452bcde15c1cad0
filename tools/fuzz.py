#!/usr/bin/env python3
"""Damage valid files at random and read them: how many are read, refused with a message, or neither.

    tools/venv/bin/python tools/fuzz.py --runs 2000 --seed 1 --out fuzz.csv
    tools/venv/bin/python tools/fuzz.py --reader ARPA --runs 20000 --out arpa.csv

The mutations and readers are those of the tests (``tests/fuzzing.py``).  A row of the table is a reader:
cases, accepted, refused, and what must not be (crash, hang, memory, unnamed, invalid), seconds of the
slowest case and MB by which the process grew.  Exits with 1 if anything must not be; ``--keep`` writes
the files that did it.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import fuzzing  # noqa: E402
import fuzzing_readers  # noqa: E402

BAD = ("crash", "hang", "memory", "unnamed", "invalid")
COLUMNS = ("reader", "cases", "accepted", "refused", *BAD, "slowest_s", "grown_MB", "seconds")


def steps(rng: random.Random) -> list[fuzzing.Step]:
    """One to four mutations; one is the most frequent."""
    count = rng.choice((1, 1, 1, 2, 2, 3, 4))
    return [(rng.choice(fuzzing.NAMES), rng.getrandbits(16), rng.getrandbits(16)) for _ in range(count)]


def campaign(reader: fuzzing.Reader, runs: int, seed: int, keep: Path | None) -> dict[str, object]:
    """Read ``runs`` damaged files; return the row of the table, with details of what must not be."""
    warnings.simplefilter("ignore")
    rng = random.Random(f"{seed} {reader.name}")
    kinds: Counter[str] = Counter()
    details: dict[str, str] = {}
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "in"
        place.mkdir()
        path = reader.seed(place)
        data = path.read_bytes()
        reader.read(path)  # the valid file, which also imports what reading needs
        before, began = peak(), time.process_time()
        for case in range(runs):
            plan = fuzzing.ALWAYS[case] if case < len(fuzzing.ALWAYS) else steps(rng)
            mutated = fuzzing.mutate(data, plan)
            found = fuzzing.run_case(reader, place, path, mutated)
            kinds[found.kind] += 1
            slowest = max(slowest, found.seconds)
            if not found.good:
                details.setdefault(f"{found.kind}: {found.detail[:120]}", f"{plan}")
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{reader.name.replace(' ', '_')}.{case}.{path.name}").write_bytes(mutated)
    row = {"reader": reader.name, "cases": runs, "slowest_s": f"{slowest:.3f}"}
    row |= {kind: kinds[kind] for kind in ("accepted", "refused", *BAD)}
    row |= {"grown_MB": f"{peak() - before:.1f}", "seconds": f"{time.process_time() - began:.1f}"}
    return row | {"details": details}


def isolated(reader: fuzzing.Reader, runs: int, seed: int, keep: Path | None) -> dict[str, object]:
    """`campaign` in a process of its own: its memory is measured, and what brings it down is seen."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(campaign(reader, runs, seed, keep)))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        child.join()
        row: dict[str, object] = dict.fromkeys(COLUMNS, 0)
        what = {f"the process ended with {child.exitcode}": "no answer"}
        return row | {"reader": reader.name, "cases": runs, "crash": 1, "details": what}
    finally:
        child.join()


def peak() -> float:
    """Most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    everything = fuzzing_readers.READERS + fuzzing_readers.MODEL_READERS
    names = [reader.name for reader in everything]
    parser.add_argument("--reader", default="all", help=f"all, or one of: {', '.join(names)}")
    parser.add_argument("--runs", type=int, default=1000, help="cases of each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="CSV file of the table")
    parser.add_argument("--keep", type=Path, help="folder for the files that did what must not be")
    args = parser.parse_args()
    chosen = [reader for reader in everything if args.reader in ("all", reader.name)]
    if not chosen:
        parser.error(f"--reader {args.reader}: one of {', '.join(names)} expected")
    table = []
    for reader in chosen:
        row = isolated(reader, args.runs, args.seed, args.keep)
        details = row.pop("details")
        table.append(row)
        print(" ".join(f"{name}={row[name]}" for name in COLUMNS), flush=True)
        for what, plan in list(details.items())[:8]:
            print(f"    {what}\n        {plan}", flush=True)
    if args.out is not None:
        with open(args.out, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    return int(any(row[kind] for row in table for kind in BAD))


if __name__ == "__main__":
    sys.exit(main())
