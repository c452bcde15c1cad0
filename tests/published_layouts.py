"""Small copies of corpora, laid out as they are published; each byte follows from the arguments.

`TREES` has one builder a corpus: ``TREES["fleurs"](root, 2)`` writes two utterances of each split of some
parts below ``root``.  No two clips sound alike, and no text or speaker is in two splits.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import soundfile

CV = "client_id path sentence up_votes down_votes age gender accents variant locale segment".split()
MP3 = dict(format="MP3", subtype="MPEG_LAYER_III")
LOCALES = ("en", "de", "eu")
CONFIGS = ("en_us", "cmn_hans_cn", "af_za")


def tone(key: str, rate: int = 16000, seconds: float = 0.3) -> np.ndarray:
    """Return two tones (S,) whose pitches follow from a name, so that no two clips are equal."""
    draw = hashlib.sha256(key.encode()).digest()
    pitches = (150 + int.from_bytes(part, "little") / 2**32 * 900 for part in (draw[:4], draw[4:8]))
    time = np.arange(round(rate * seconds)) / rate
    return 0.15 * sum(np.sin(2 * np.pi * hz * time) for hz in pitches)


def write_clip(path: Path, rate: int = 16000, seconds: float = 0.3, **style: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(path.name, rate, seconds), rate, **style)


def clip_bytes(key: str, rate: int = 16000, **style: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(key, rate), rate, **{"format": "WAV", **style})
    return buffer.getvalue()


def write_lines(path: Path, rows: list[list[str]], sep: str = "\t") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(sep.join(row) + "\n" for row in rows), encoding="utf-8")


def write_tar(path: Path, folder: Path) -> None:
    """Pack a folder under its own name, and remove it: as a fresh download is."""
    with tarfile.open(path, "w:*" if path.suffix == ".tar" else "w:gz") as tar:
        tar.add(folder, folder.name)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def common_voice(root: Path, num: int = 2, locales: Iterable[str] = LOCALES) -> None:
    for locale in locales:
        for split, speaker in (("train", "a" * 128), ("dev", "b" * 128), ("test", "c" * 128)):
            rows = [CV]
            for number in range(num):
                name = f"common_voice_{locale}_{split}{number}.mp3"
                write_clip(root / locale / "clips" / name, 32000, **MP3)
                text = f'Say "{locale} {split}" {number}'  # a quote that quotes nothing
                rows.append([speaker, name, text, "2", "0", "", "", "", "", locale, ""])
            write_lines(root / locale / f"{split}.tsv", rows)


def fleurs(root: Path, num: int = 2, configs: Iterable[str] = CONFIGS) -> None:
    for config in configs:
        for split in ("train", "dev", "test"):
            folder = root / "data" / config / "audio" / split
            rows = []
            for number in range(num):
                name = f"{number}{len(config)}{len(split)}.wav"
                folder.mkdir(parents=True, exist_ok=True)
                soundfile.write(folder / name, tone(f"{config}/{split}/{name}"), 16000)
                text = f"{config} {split} {number}"
                rows.append([str(number), name, text.upper(), text, "| ".join(text), "4800", "MALE"])
            write_lines(root / "data" / config / f"{split}.tsv", rows)
            write_tar(folder.with_suffix(".tar.gz"), folder)


def voxpopuli(root: Path, num: int = 2) -> None:
    header = ["id", "raw_text", "normalized_text", "speaker_id", "split", "gender"]
    folder = root / "transcribed_data/en"
    for split in ("train", "dev", "test"):
        rows = [header]
        for number in range(num):
            utt = f"2018061{number}-0900-PLENARY-15-en_20180613-18:05:0{number}_{split}"
            write_clip(folder / f"2018/{utt}.ogg", format="OGG", subtype="VORBIS")
            speaker = "None" if number % 2 else f"124746{split}"
            rows.append([utt, "Mr. X", f"mister {split} {number}", speaker, split, "female"])
        rows.append([utt + "9", "", "", "None", split, ""])  # no words: not transcribed
        write_clip(folder / f"2018/{utt}9.ogg", format="OGG", subtype="VORBIS")
        write_lines(folder / f"asr_{split}.tsv", rows)


def librispeech(root: Path, num: int = 2) -> None:
    speakers = {"train-clean-100": "103", "dev-clean": "84", "test-clean": "1089"}
    speakers |= {"train-other-500": "25", "dev-other": "116", "test-other": "367"}
    for split, spk in speakers.items():
        folder = root / "LibriSpeech" / split / spk / "7"
        rows = [[f"{spk}-7-{n:04}", f"CHAPTER {split.upper()} {n}"] for n in range(num)]
        for utt, _ in rows:
            write_clip(folder / f"{utt}.flac")
        write_lines(folder / f"{spk}-7.trans.txt", rows, sep=" ")


def gigaspeech(root: Path, num: int = 1) -> None:
    """Write ``num`` recordings a subset, each with a spoken segment and one without speech."""
    audios = []
    for subset in ("XS", "DEV", "TEST"):
        for number in range(num):
            aid = f"YOU{subset}{number or ''}"
            path = f"audio/youtube/P0000/{aid}.opus"
            write_clip(root / path, seconds=1.0, format="OGG", subtype="OPUS")
            texts = (f"AND {aid[3:]} <COMMA> SO WHAT <QUESTIONMARK>", "<MUSIC>")
            segments = [
                {"sid": f"{aid}_S{n}", "begin_time": [0.0, 0.31][n], "end_time": [0.31, 0.8][n],
                 "channel": 0, "text_tn": text, "subsets": ["{XL}", f"{{{subset}}}"]}
                for n, text in enumerate(texts)
            ]  # fmt: skip
            audios.append({"aid": aid, "path": path, "speaker": "N/A", "segments": segments})
    (root / "GigaSpeech.json").write_text(json.dumps({"dataset": "GigaSpeech", "audios": audios}))


def ascend(root: Path, num: int = 1) -> None:
    """Write three utterances ``num`` times: Mandarin, a code switch, English."""
    for split in ("train", "validation", "test"):
        rows = [["file_name", "transcription", "duration", "language", "original_speaker_id",
                 "session_id", "topic"]]  # fmt: skip
        for number in range(num):
            for spk, code, text in ((7, "zh", "好的"), (7, "mixed", "我们 go 吧,快"), (9, "en", "okay")):
                name = f"waves/ses1_spk{spk}{split}_{code}_15.3200_0.78{number or ''}10.wav"
                write_clip(root / name)
                words = f"{text} {split}{f' {number}' if number else ''}"
                rows.append([name, words, "0.3", code, f"{spk}{len(split)}", "1", "persona"])
        with open(root / f"{split}_metadata.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def tedlium(root: Path) -> None:
    for split in ("train", "dev", "test"):
        talk = f"AlGore_{split}"
        folder = root / "TEDLIUM_release1" / split
        write_clip(folder / "sph" / f"{talk}.sph", seconds=2.0, format="NIST", subtype="PCM_16")
        rows = [
            f"{talk} 1 {talk} 0.00 0.50 <o,f0,male> {{COUGH}} it 's <sil> for(2) {split}",
            f"{talk} 1 {talk} 0.50 0.90 <o,f0,male> ignore_time_segment_in_scoring",
            f"{talk} 1 inter_segment_gap 0.90 1.20 <o,,unknown>",
            f";; comment of {split}",
            f"{talk} 1 {talk} 1.20 1.90 <o,f0,male> thank you {split}",
        ]
        write_lines(folder / "stm" / f"{talk}.stm", [[row] for row in rows])


def mls(root: Path, num: int = 2) -> None:
    for part in ("german", "polish"):
        for split, spk in (("train", "1"), ("dev", "2"), ("test", "3")):
            folder = root / f"mls_{part}" / split
            rows = [[f"{spk}_55_00000{n}", f"{part} {split} {n}"] for n in range(num)]
            for utt, _ in rows:
                write_clip(folder / "audio" / spk / "55" / f"{utt}.flac")
            write_lines(folder / "transcripts.txt", rows)


def write_parquet(path: Path, rows: list[dict]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def hub_row(key: str, rate: int = 16000, **columns: object) -> dict:
    return {"audio": {"bytes": clip_bytes(key, rate), "path": f"{key}.wav"}, **columns}


def peoples_speech(root: Path, num: int = 3) -> None:
    for split in ("train", "validation", "test"):
        for shard in range(2):
            rows = [hub_row(key := f"{split}{shard}{n}", id=f"x/{key}.flac", text=f"people {key}",
                            duration_ms=300) for n in range(num)]  # fmt: skip
            write_parquet(root / f"clean/{split}-{shard:05}-of-00002.parquet", rows)


def ami(root: Path, num: int = 2) -> None:
    for part in ("ihm", "sdm"):
        for split in ("train", "validation", "test"):
            about = {"text": f"OKAY {split.upper()}", "speaker_id": f"MEE06{len(split)}"}
            rows = [hub_row(key := f"{part}{split}{n}", audio_id=f"AMI_{key}", **about)
                    for n in range(num)]  # fmt: skip
            write_parquet(root / part / split / "0000.parquet", rows)


def minds14(root: Path, num: int = 2) -> None:
    for part in ("en-US", "ko-KR"):
        rows = [hub_row(f"{part}{n}", 8000, path=f"{part}~BALANCE/{n}.wav", transcription=f"card {n}")
                for n in range(num)]  # fmt: skip
        write_parquet(root / part / "train-00000-of-00001.parquet", rows)


TREES: dict[str, Callable[..., None]] = {
    tree.__name__: tree
    for tree in (common_voice, fleurs, voxpopuli, librispeech, gigaspeech, ascend, tedlium, mls,
                 peoples_speech, ami, minds14)
}  # fmt: skip


@pytest.fixture(name="copy")
def copy_fixture(tmp_path):
    """Return a function that writes a corpus's copy below its name."""

    def write(name: str) -> Path:
        root = tmp_path / "corpora" / name
        root.mkdir(parents=True)
        TREES[name](root)
        return root

    return write
