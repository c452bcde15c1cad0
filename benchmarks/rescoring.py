"""Time of MBR over scored lists: ``python benchmarks/rescoring.py``.

Makes up 1,000 lists of 128 texts of about 100 characters, runs ``bin.rescore`` on them as a user would,
and times the choice of one list against the same rule in plain Python and with jiwer.  CPU only.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from espnet_latentasr.config import load_yaml
from espnet_latentasr.rescoring.config import load_rescore_config
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, write_nbest
from espnet_latentasr.rescoring.select import select

CONFIG = Path(__file__).parents[1] / "egs2/latentasr/asr1/conf/decode_mbr_pll.yaml"
WORDS = "the of and to in a is that it was for on are with as his they be at this have from".split()


def made_up(utt: str, size: int, rng: random.Random) -> NBest:
    """Return a list of distinct texts of 30 words, each with a few words changed."""
    base = [rng.choice(WORDS) for _ in range(30)]
    texts: dict[str, None] = {}
    while len(texts) < size:
        words = [rng.choice(WORDS) if rng.random() < 0.1 else word for word in base]
        texts[" ".join(words)] = None
    hyps = (
        Candidate(text, text, (1, 2), -float(i) - 1, 1, -float(i) - 1, {"pll": -rng.uniform(50, 80)})
        for i, text in enumerate(texts)
    )
    return NBest(utt, Meta("sys", size, "none", "made-up"), tuple(hyps))


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance, one row at a time."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def by_hand(nbest: NBest, distance, share: float = 1.0) -> tuple[int, float]:
    """Return the choice of the plain rule and the seconds it takes, extrapolated from a share of rows."""
    scores = np.array([c.scores["pll"] for c in nbest.hyps]) / 10
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    texts = [c.text for c in nbest.hyps]
    rows = texts[: max(1, round(share * len(texts)))]
    begin = time.perf_counter()
    risks = [
        sum(w * distance(a, b) / max(len(a), len(b), 1) for w, b in zip(weights, texts)) for a in rows
    ]
    seconds = (time.perf_counter() - begin) * len(texts) / len(rows)
    return int(np.argmin(risks)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, default=1000)
    parser.add_argument("--size", type=int, default=128)
    args = parser.parse_args()
    print(f"rule: {load_yaml(CONFIG)}")
    rng, config = random.Random(0), load_rescore_config(CONFIG)
    lists = [made_up(f"utt{i:05d}", args.size, rng) for i in range(args.utterances)]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "nbest.jsonl"
        write_nbest(path, lists)
        command = ["-m", "espnet_latentasr.bin.rescore", "--nbest", path, "--config", CONFIG]
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, *map(str, command), "--out", str(Path(name) / "out")],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        wall = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(
        f"bin.rescore, {args.utterances} x {args.size}: {wall:.1f} s, {seconds:.1f} s of CPU, "
        f"{used.ru_maxrss / 2**20:.2f} GiB"
    )
    import jiwer

    ours, python, peer = [], [], []
    for nbest in lists[:5]:
        begin = time.perf_counter()
        chosen = select(nbest, config).index
        ours.append(time.perf_counter() - begin)
        python.append(by_hand(nbest, edit_distance, 2 / args.size)[1])
        characters = by_hand(nbest, lambda a, b: jiwer.cer(b, a) * len(b))
        assert characters[0] == chosen, "not the same choice"
        peer.append(characters[1])
    for name, seconds in (("plain Python", python), ("jiwer.cer per pair", peer)):
        ratios = sorted(other / own for other, own in zip(seconds, ours))
        print(
            f"one list, {name}: {np.median(seconds):.2f} s against {np.median(ours) * 1e3:.1f} ms, "
            f"ratio {ratios[2]:.0f} ({ratios[0]:.0f} to {ratios[-1]:.0f})"
        )


if __name__ == "__main__":
    main()
