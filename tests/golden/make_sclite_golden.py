"""The sclite binary as an oracle, and the golden files made with it: ``python make_sclite_golden.py``.

Run it again only when cases are added; needs sclite (Debian: ``apt-get install sctk``).
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VOCABULARY = {
    "two": ["a", "b"],
    "three": ["a", "b", "c"],
    "english": ["the", "cat", "sat", "on", "a", "mat", "over", "there", "and", "it's", "o'clock"],
    "many": [f"w{i}" for i in range(100)],
    "german": ["über", "Über", "größe", "straße", "schön", "schon", "für", "fur", "äh"],
    "hindi": ["हिन्दी", "में", "हम", "नदी", "नदि", "क्या", "है", "भाषा"],
    "arabic": ["اللغة", "العربية", "إِنَّ", "ان", "كتاب", "كتب", "في"],
    "thai_characters": list("ภาษาไทยน้ำำ่") + ["<space>"],
    "chinese_characters": list("你好世界中国北京的是我们他"),
    "japanese_characters": list("カタカナかな漢字ーを がは".replace(" ", "")),
    "korean": ["한국어", "띄어쓰기", "는", "은", "어렵다", "쉽다"],
    "mixed": list("我要去图书馆") + ["meeting", "email", "ok"],
}


def find_sclite() -> str | None:
    """Return the path of the binary; Debian keeps it out of PATH."""
    return shutil.which("sclite") or shutil.which("sclite", path="/usr/lib/sctk/bin")


def run_sclite(folder: Path, *options: str) -> str:
    """Score ``ref.trn`` and ``hyp.trn`` of a folder as ESPnet's asr.sh does."""
    command = [find_sclite(), "-r", "ref.trn", "trn", "-h", "hyp.trn", "trn", "-i", "rm", *options]
    command += ["stdout"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120)
    return done.stdout.decode("utf-8")


def sclite_counts(pairs: list[tuple[list[str], list[str]]]) -> list[tuple[int, int, int, int]]:
    """Return (C, S, D, I) of each pair of token lists."""
    with tempfile.TemporaryDirectory() as folder:
        for side, name in enumerate(("ref.trn", "hyp.trn")):
            lines = [f"{' '.join(pair[side])} (s-{i:06d})\n" for i, pair in enumerate(pairs)]
            (Path(folder) / name).write_text("".join(lines), encoding="utf-8")
        out = run_sclite(Path(folder), "-o", "pralign")
    ids = [int(i) for i in re.findall(r"^id: \(s-(\d+)\)", out, re.MULTILINE)]
    scores = re.findall(r"^Scores: \(#C #S #D #I\) (\d+) (\d+) (\d+) (\d+)", out, re.MULTILINE)
    by_id = dict(zip(ids, (tuple(map(int, s)) for s in scores), strict=True))
    return [by_id[i] for i in range(len(pairs))]


def random_pair(rng: random.Random, words: list[str], length: int) -> tuple[list[str], list[str]]:
    """Return a reference of random words and a corrupted copy: deletions, insertions, changes."""
    reference = [rng.choice(words) for _ in range(length)]
    hypothesis = []
    for word in reference:
        kind = rng.random()
        if kind > 0.2:
            hypothesis.append(rng.choice(words) if kind < 0.5 else word)
        if rng.random() < 0.2:
            hypothesis.append(rng.choice(words))
    return reference, hypothesis


def golden_pairs() -> list[tuple[list[str], list[str]]]:
    """Return about 200 pairs: edges, random ones of each vocabulary, one long."""
    rng = random.Random(20)
    pairs = [([], []), ([], ["a"]), (["a"], []), (["a", "b"], ["b", "a"]), (["a"] * 3, ["a"] * 5)]
    pairs += [
        random_pair(rng, w, rng.randint(0, 14)) for w in VOCABULARY.values() for _ in range(16)
    ]
    return [*pairs, random_pair(rng, VOCABULARY["chinese_characters"], 300)]


def main() -> None:
    pairs = golden_pairs()
    rows = [
        json.dumps({"ref": " ".join(r), "hyp": " ".join(h), "CSDI": counts}, ensure_ascii=False)
        for (r, h), counts in zip(pairs, sclite_counts(pairs), strict=True)
    ]
    text = "[\n" + ",\n".join(rows) + "\n]\n"
    (HERE / "sclite_counts.json").write_text(text, encoding="utf-8")

    folder = HERE / "sclite_all"
    folder.mkdir(exist_ok=True)
    rng = random.Random(21)
    ids = [f"spk{s}x{'y' * s}_{u:03d}" for s in range(5) for u in range(2 + 3 * s)]
    made = [
        random_pair(rng, VOCABULARY["english"], rng.randint(0 if i else 1, 12))
        for i in range(len(ids))
    ]
    for side, name in enumerate(("ref.trn", "hyp.trn")):
        lines = [
            f"{' '.join(p[side])} ({u.split('_')[0]}-{u})\n" for u, p in zip(ids, made, strict=True)
        ]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "result.txt").write_text(run_sclite(folder, "-o", "all"), encoding="utf-8")


if __name__ == "__main__":
    main()
