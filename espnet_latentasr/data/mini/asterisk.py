"""The Asterisk English prompts as a corpus of recorded speech; knows the Debian packages' layout.

One professional speaker (Allison Smith), CC BY-SA 3.0.  The audio is G.722 at 16 kHz, the transcripts
one ``name: text`` line per prompt.  Nothing is installed: the packages are downloaded with
``apt-get download`` and unpacked with ``dpkg -x`` (no root), or read from a folder the user names.
"""

from __future__ import annotations

import gzip
import logging
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

PACKAGES = ("asterisk-core-sounds-en", "asterisk-core-sounds-en-g722")
SPEAKER = "allison"
_TRANSCRIPTS = "usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
_SOUNDS = "usr/share/asterisk/sounds/en_US_f_Allison"
_WORDS = {str(i): w for i, w in enumerate("zero one two three four five six seven eight nine".split())}


def fetch(folder: Path) -> Path | None:
    """Download and unpack the packages below ``folder``; None (and a log line) if that cannot be."""
    root = folder / "unpacked"
    if (root / _TRANSCRIPTS).is_file() and (root / _SOUNDS).is_dir():
        return root
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        logging.warning("Asterisk prompts: no %s on this machine", " and no ".join(missing))
        return None
    folder.mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", *PACKAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        logging.warning(
            "Asterisk prompts: 'apt-get download %s' failed (a stale package list is mended by "
            "'apt-get update'): %s",
            " ".join(PACKAGES),
            done.stderr.strip()[-300:],
        )
        return None
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package.resolve()), str(root.resolve())], check=True)
    return root


def clean_transcript(raw: str) -> str | None:
    """Turn a prompt's printed text into lower-case words; None when it is not plain speech.

    Stage directions (brackets), numbers of more than one digit (how they are read is not written),
    acronyms and anything outside a-z and the apostrophe are refused.

    >>> clean_transcript("Press 9 for more entries.")
    'press nine for more entries'
    """
    if re.search(r"[\[\](){}<>]", raw) or re.search(r"\d\d", raw):
        return None
    text = re.sub(r"\b([A-Z])\.(?=[A-Z]\.)", r"\1 ", raw)  # A.M. is read letter by letter
    text = re.sub(r"\d", lambda match: f" {_WORDS[match.group()]} ", text)
    text = re.sub(r"[.,;:!?\"/_-]|\.\.\.", " ", text.lower().replace("’", "'"))
    words = text.split()
    if not words or any(not re.fullmatch(r"[a-z]+(?:'[a-z]+)*", word) for word in words):
        return None
    if any(len(word) > 1 and not re.search("[aeiouy]", word) for word in words):
        return None  # an acronym: whether it is spelled or spoken is not written
    return " ".join(words)


def transcripts(root: Path) -> dict[str, str]:
    """Read prompt name -> cleaned transcript for all prompts with audio and plain words."""
    found: dict[str, str] = {}
    with gzip.open(root / _TRANSCRIPTS, "rt", encoding="utf-8", errors="strict") as lines:
        for line in lines:
            name, separator, raw = line.strip().partition(":")
            if not separator or name.startswith(";"):
                continue
            text = clean_transcript(raw)
            if text is not None and (root / _SOUNDS / f"{name}.g722").is_file():
                found[name] = text
    return found


def read_prompt(root: Path, name: str) -> np.ndarray:
    """Decode one prompt to int16 samples (S,) at 16 kHz, scaled to the corpus' peak."""
    from G722 import G722

    coded = (root / _SOUNDS / f"{name}.g722").read_bytes()
    audio = np.asarray(G722(16000, 64000).decode(coded), dtype=np.float32)
    peak = np.abs(audio).max()
    return np.round(audio / max(peak, 1.0) * 0.6 * 32767).astype(np.int16)
