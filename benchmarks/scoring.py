"""Time of scoring and comparing systems: ``python benchmarks/scoring.py``.

Makes up a test set of ``--utterances`` sentences and ``--systems`` recognisers with about 10 % WER,
runs the command that everybody runs on them, and prints its seconds.  CPU only, no model.
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

WORDS = """the of and to in a is that it was for on are with as his they be at this have from or had
by not but what some we can out other were all your when up use word how said each she which do their
time if will way about many then them would write like so these her long make thing see him two has
look more day could go come did my sound no most number who over know water than call first people may
down side been now find won't it's colour twenty hundred Mr. O'Brien centre 1,000 door-to-door""".split()


def sentence(rng: random.Random) -> list[str]:
    words = [rng.choice(WORDS) for _ in range(max(1, round(rng.gauss(20, 8))))]
    # A long tail of rare words, so that no memory of words can help.
    rare = ["".join(rng.choices("abcdefghiklmnoprstuvwy", k=rng.randint(4, 9))) for _ in words]
    mixed = [word if rng.random() < 0.6 else other for word, other in zip(words, rare)]
    return [mixed[0].capitalize(), *(w + "," if rng.random() < 0.08 else w for w in mixed[1:])]


def heard(words: list[str], rng: random.Random, rate: float = 0.1) -> list[str]:
    said = []
    for word in words:
        kind = rng.random() / rate
        if kind > 0.2:  # else deleted
            said.append(rng.choice(WORDS) if kind < 0.8 else word)
        if 0.8 < kind < 1:
            said.append(rng.choice(WORDS))
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, default=23_049)
    parser.add_argument("--systems", type=int, default=2)
    parser.add_argument("--normalizer", default="whisper_en")
    parser.add_argument("--nj", type=int, default=2)
    args = parser.parse_args()
    rng = random.Random(0)
    refs = {f"utt{i:06d}": sentence(rng) for i in range(args.utterances)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = [refs] + [
            {utt: heard(words, rng) for utt, words in refs.items()} for _ in range(args.systems)
        ]
        paths = [folder / "ref", *(folder / f"system{i}" for i in range(args.systems))]
        for path, texts in zip(paths, sides):
            lines = (f"{utt} {' '.join(words)}".rstrip() + "\n" for utt, words in texts.items())
            path.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "espnet_latentasr.bin.score", "--ref", str(paths[0])]
        command += ["--hyp", str(paths[1]), "--lang", "en", "--normalizer", args.normalizer]
        command += ["--out", str(folder / "out"), "--nj", str(args.nj)]
        command += ["--hyp2", *map(str, paths[2:])] if paths[2:] else []
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = sum(map(len, refs.values()))
    print(
        f"{args.systems} systems, {args.utterances} utterances of {words / args.utterances:.1f} words, "
        f"{args.normalizer}: {seconds:.1f} s, CPU {used.ru_utime + used.ru_stime:.1f} s with {args.nj} "
        f"processes, peak memory of one {used.ru_maxrss / 2**20:.2f} GiB"
    )


if __name__ == "__main__":
    main()
