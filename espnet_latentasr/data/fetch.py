"""Published corpora: knows addresses, terms, downloads and archives, nothing of what is in them."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from tqdm import tqdm

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

TIMEOUT = 60.0  # seconds without a byte
CHUNK = 1 << 20


@dataclass(frozen=True)
class Corpus:
    """A row of ``corpora.yaml``; ``language`` is a code that `text.languages` knows."""

    page: str
    urls: tuple[str, ...]
    sha256: str | None
    language: str
    licence: str
    citation: str


@cache
def published(name: str) -> Corpus:
    """Return what is known of a corpus of ``corpora.yaml``."""
    table = yaml.safe_load((files(__package__) / "corpora.yaml").read_text(encoding="utf-8"))
    return Corpus(**table[name] | {"urls": tuple(table[name]["urls"])})


def download(urls: Sequence[str], target: Path, sha256: str | None = None) -> Path:
    """Download a file, continuing what an earlier try left in ``target.partial``.

    ``target`` appears when all announced bytes are there and, if ``sha256`` (hex) is known, are the
    right ones.  A file that is there already is taken as it is.

    Raises:
        DataError: no address gave the whole file (what came is kept), or its check sum is wrong.
    """
    if target.is_file():
        return target
    partial = target.with_name(target.name + ".partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in urls:
        logging.info("downloading %s", url)
        try:
            _continue_download(url, partial)
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{url}: {error}")
            continue
        if sha256 and (found := file_sha256(partial)) != sha256:
            partial.unlink()
            raise DataError(f"{url}: SHA-256 {found}, {sha256} expected; deleted, try again")
        os.replace(partial, target)
        _validator(partial).unlink(missing_ok=True)
        return target
    raise DataError(
        f"{target}: cannot be downloaded ({'; '.join(problems)}); run it again to continue, or get "
        "a copy elsewhere and name it with --src"
    )


def _validator(partial: Path) -> Path:
    """Name the file that says which version of the remote file the bytes of ``partial`` are of."""
    return partial.with_name(partial.name.removesuffix(".partial") + ".etag.partial")


def _continue_download(url: str, partial: Path) -> None:
    """Append to ``partial`` what it lacks, or fill it anew where that cannot be continued."""
    known = _validator(partial)
    have = partial.stat().st_size if partial.exists() and known.exists() else 0
    headers = {"Range": f"bytes={have}-", "If-Range": known.read_text()} if have else {}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: nothing behind the bytes that are there
            raise
        partial.unlink()
        return _continue_download(url, partial)
    with answer:
        if answer.status != 206:
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        if tag := answer.headers.get("ETag") or answer.headers.get("Last-Modified"):
            atomic_write_text(known, tag)
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=partial.stem, disable=None)
        with open(partial, "ab" if have else "wb") as file, bar:
            while block := answer.read(CHUNK):
                file.write(block)
                bar.update(len(block))
    if total is not None and partial.stat().st_size != total:
        raise ConnectionError(f"broke off at {partial.stat().st_size} of {total} bytes")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive, compressed or not, as ``folder``, whole or not at all.

    A folder that is there is taken as it is.  Nothing is written outside it: members and links that
    name a folder above them, absolute links and devices are refused.

    Raises:
        DataError: a damaged archive, or one with such members.
    """
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    logging.info("unpacking %s", archive)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                _write_member(tar, member, temporary)
            while tar.fileobj.read(CHUNK):  # to the end, where the check sum is
                pass
        os.replace(temporary, folder)
    except Exception as error:  # the library and its decompressors raise whatever they do
        raise DataError(f"{archive}: cannot be unpacked ({error}); delete it and get it anew") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file, a folder or a link to what is inside; modes and owners are not taken over.

    Not ``extractall``: before 3.11.4 Python has no filter for it, and long chains of links with ``..``
    have misled the filters of later ones.
    """
    link = member.linkname if member.issym() or member.islnk() else ""
    name = member.name.lstrip("/")
    if link.startswith("/") or ".." in [*name.split("/"), *link.split("/")]:
        raise tarfile.TarError(f"'{member.name}' leads out of the folder")
    target = folder / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        os.symlink(link, target)
    elif member.isreg() or member.islnk():
        with tar.extractfile(member) as source, open(target, "xb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    else:
        raise tarfile.TarError(f"'{member.name}' is no file, folder or link")
