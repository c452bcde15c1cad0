"""Downloads against a server of this test, and archives that mean harm or are damaged."""

import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from espnet_latentasr.data import fetch
from espnet_latentasr.errors import DataError

DATA = bytes(range(256)) * 40


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if self.path != "/x":
            return self.send_error(404)
        body, status = server.data, 200
        if asked and self.headers.get("If-Range") == server.tag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                return self.send_error(416)
            body, status = body[start:], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.tag)
        self.end_headers()
        self.wfile.write(body[: server.breaks_after])

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.data, server.tag, server.asked, server.breaks_after = DATA, '"one"', [], None
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}/x"
        yield server
        server.shutdown()


def test_download_continues_where_it_broke_off(server, tmp_path):
    target = tmp_path / "new" / "x.tar.gz"
    server.breaks_after = 3000
    with pytest.raises(DataError, match="broke off at 3000 of 10240 bytes.*--src"):
        fetch.download([server.url], target)
    assert not target.exists()
    server.breaks_after = None
    assert fetch.download([server.url], target).read_bytes() == DATA
    assert server.asked == [None, "bytes=3000-"]
    assert [path.name for path in target.parent.iterdir()] == ["x.tar.gz"]
    fetch.download([server.url], target)
    assert len(server.asked) == 2  # what is there is not asked for again


def test_another_version_of_the_file_is_not_continued(server, tmp_path):
    server.breaks_after = 3000
    with pytest.raises(DataError):
        fetch.download([server.url], tmp_path / "x")
    server.data, server.tag, server.breaks_after = DATA[::-1], '"two"', None
    assert fetch.download([server.url], tmp_path / "x").read_bytes() == DATA[::-1]


def test_whole_file_without_its_name(server, tmp_path):
    """Killed between the last byte and the renaming."""
    (tmp_path / "x.partial").write_bytes(DATA)
    (tmp_path / "x.etag.partial").write_text('"one"')
    assert fetch.download([server.url], tmp_path / "x").read_bytes() == DATA


def test_next_address(server, tmp_path):
    assert fetch.download([server.url + "y", server.url], tmp_path / "x").read_bytes() == DATA
    with pytest.raises(DataError, match="xy: HTTP Error 404"):
        fetch.download([server.url + "y"], tmp_path / "other")


def test_check_sum(server, tmp_path):
    right = fetch.file_sha256(fetch.download([server.url], tmp_path / "x"))
    fetch.download([server.url], tmp_path / "y", right)
    with pytest.raises(DataError, match=f"SHA-256 {right}, 0000 expected"):
        fetch.download([server.url], tmp_path / "z", "0000")
    assert {path.name for path in tmp_path.iterdir()} >= {"x", "y"}
    assert not (tmp_path / "z").exists() and not (tmp_path / "z.partial").exists()


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
    return path


def test_unpack(tmp_path):
    path = archive(tmp_path / "x.tar.gz", {"a/b.txt": b"text"})
    assert (fetch.unpack(path, tmp_path / "out") / "a/b.txt").read_text() == "text"
    path.unlink()
    fetch.unpack(path, tmp_path / "out")  # it is there


@pytest.mark.parametrize(
    "members", [{"../evil.txt": b"x"}, {"a/../../evil.txt": b"x"}, {"link": "/etc", "ok": b""}]
)
def test_nothing_leaves_the_folder(tmp_path, members):
    path = archive(tmp_path / "in.tar.gz", members)
    with pytest.raises(DataError, match="in.tar.gz: cannot be unpacked"):
        fetch.unpack(path, tmp_path / "place" / "out")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_damaged_archives(tmp_path, damage):
    path = archive(tmp_path / "x.tar.gz", {"a": bytes(range(256)) * 500})
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-9]
    elif damage == "flip":
        data[-6] ^= 1  # in the check sum
    else:
        data = b"no archive"
    path.write_bytes(data)
    with pytest.raises(DataError, match="x.tar.gz: cannot be unpacked"):
        fetch.unpack(path, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]
