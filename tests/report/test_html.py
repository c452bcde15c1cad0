"""The page: whole, closed, escaped, bounded, with players."""

import base64
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from espnet_latentasr.data.kaldi_dir import AudioSource
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.report import listing as listing_module
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import Options, load_experiment
from espnet_latentasr.report.html import html_table, page
from espnet_latentasr.report.html_utterances import aligned
from espnet_latentasr.report.listing import Listing, Row, listing
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.tables import Column, Table

VOID = {"meta", "img", "input", "br", "link"}
EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """Collects tags with their attributes, and fails on a tag that is not closed in order."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def of(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def row(**changes):
    fields = {
        "test_set": "t", "utt": "u", "reference": "a b c", "frozen": "a x c d", "latent": "a c",
        "errors": (2, 1), "length": 3, "seconds": 1.0, "steps": 1, "stopped": "step",
        "values": (0.1, -0.2), "by_depth": (2, 1), "audio": "clip.wav",
    } | changes  # fmt: skip
    return Row(**fields)


def one_page(*rows, total=None, **changes):
    listed = Listing("decode", tuple(rows), len(rows) if total is None else total, len(rows))
    return page("title", [], {}, listed, "wer")


def test_alignment_marks_each_kind_of_error():
    found = aligned("frozen", "a b c e", "a x c d", "wer")
    assert '<span class="sub" title="reference: b">x</span>' in found
    assert aligned("w", "a b", "a", "wer").endswith("a <del>b</del></span>")
    assert aligned("w", "a", "a b", "wer").endswith("a <ins>b</ins></span>")
    assert aligned("w", "你 好 <space> x", "你 好 <space> x", "cer").endswith("你好 x</span>")


def test_the_page_is_closed_and_loads_nothing():
    text = one_page(row(), row(utt="v", audio=None, by_depth=None, values=()))
    reader = read(text)
    policy = reader.of("meta")[1]["content"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert not reader.of("link") and not re.search(r"\b(src|href)=\"(https?:)?//", text)
    assert [a["src"] for a in reader.of("audio")] == ["clip.wav"]
    assert all(a["preload"] == "none" for a in reader.of("audio"))
    assert [d["data-change"] for d in reader.of("details")] == ["better", "better"]


@pytest.mark.parametrize(
    "field", ["test_set", "utt", "reference", "frozen", "latent", "stopped", "audio"]
)
def test_every_text_of_a_row_is_escaped(field):
    for evil in (EVIL, '"><img src=x onerror=alert(1)>', "' onload='alert(1)"):
        reader = read(one_page(row(**{field: evil})))
        # The page's own script is the only one, and no element has a handler.
        assert len(reader.of("script")) == 1 and not reader.of("img")
        assert not [name for _, attrs in reader.tags for name in attrs if name.startswith("on")]


def test_places_can_be_linked():
    hostile = row(utt="a b#%<c>", test_set="t/1")
    reader = read(page("t", [Section("one"), Section("two")], {}, Listing("d", (hostile,), 1, 1), "wer"))
    ids = {attrs["id"] for _, attrs in reader.tags if "id" in attrs}
    links = [attrs["href"] for attrs in reader.of("a")]
    assert links[:3] == ["#section0", "#section1", "#section2"] and len(links) == 4
    assert {unquote(link.removeprefix("#")) for link in links} <= ids
    assert sum("id" in attrs for _, attrs in reader.tags) == len(ids)


def test_what_is_not_known_is_blank_and_sorts_last():
    text = one_page(row(values=(), seconds=float("nan"), steps=0))
    (found,) = [attrs for attrs in read(text).of("details") if attrs.get("class") == "utt"]
    assert (found["data-seconds"], found["data-k"], found["data-v0"]) == ("nan", "nan", "nan")
    assert ">nan<" not in text


def test_titles_tables_and_captions_are_escaped():
    table = Table("t", EVIL, (Column(EVIL),), ((EVIL,),), EVIL)
    text = page(EVIL, [Section(EVIL, EVIL, (table,))], {}, None, "wer")
    reader = read(text)
    assert not reader.of("script")
    assert sum(EVIL in part for part in reader.texts) >= 6


def test_published_tables_are_set_apart():
    reader = read(html_table(published_table("main")))
    assert {attrs.get("class") for attrs in reader.of("tr")[1:]} == {"published"}


@pytest.fixture(scope="module")
def loaded(experiment):
    options = Options(data_root=experiment / "dump" / "raw", dev="valid")
    return load_experiment(experiment / "exp" / "asr_test", options)


def test_largest_changes_are_listed_first_and_the_rest_is_counted(loaded, tmp_path):
    everyone = listing(loaded, "decode_depths", 1000, "none", tmp_path)
    assert everyone.total == len(everyone.rows) == 41 + 30
    changes = [abs(r.errors[0] - r.errors[1]) for r in everyone.rows]
    assert changes == sorted(changes, reverse=True)
    few = listing(loaded, "decode_depths", 5, "none", tmp_path)
    assert few.rows == everyone.rows[:5] and few.total == 71
    assert "5 of 71 utterances" in page("t", [], {}, few, "wer")
    assert f"66 left out, of which {few.changed - 5} change" in page("t", [], {}, few, "wer")
    first = everyone.rows[0]
    assert first.by_depth[0] == first.errors[0] and first.by_depth[first.steps] == first.errors[1]


def test_linked_audio_is_relative_and_quoted(loaded, tmp_path):
    found = listing(loaded, "decode_depths", 1000, "link", tmp_path / "out")
    assert all(r.audio.startswith("../") and "%20%23" in r.audio for r in found.rows)
    for r in found.rows:
        assert (tmp_path / "out" / unquote(r.audio)).resolve().is_file()


def test_a_segment_is_a_fragment_of_its_file(tmp_path):
    (tmp_path / "a b.wav").write_bytes(b"")
    uri = listing_module._uri
    source = AudioSource(str(tmp_path / "a b.wav"), 1.0, 2.5)
    assert uri(source, "u", "link", tmp_path) == "a%20b.wav#t=1,2.5"
    assert uri(source._replace(end=None), "u", "link", tmp_path) == "a%20b.wav#t=1"
    assert uri(source, "u", "none", tmp_path) is uri(None, "u", "link", tmp_path) is None
    assert uri(source._replace(path="gone.wav"), "u", "link", tmp_path) is None


def test_embedded_audio_is_a_wav(loaded, tmp_path, monkeypatch):
    found = listing(loaded, "decode_depths", 2, "embed", tmp_path)
    kind, _, data = found.rows[0].audio.partition(",")
    assert kind == "data:audio/wav;base64" and base64.b64decode(data).startswith(b"RIFF")
    monkeypatch.setattr(listing_module, "EMBED_LIMIT", 1000)
    with pytest.raises(ConfigError, match="--audio embed: more than 1,000 bytes"):
        listing(loaded, "decode_depths", 2, "embed", tmp_path)


def test_a_hostile_experiment_gives_a_page_with_one_script(loaded, tmp_path, hostile_id):
    reader = read(page("t", [], {}, listing(loaded, "decode_depths", 1000, "link", tmp_path), "wer"))
    assert len(reader.of("script")) == 1
    assert hostile_id in {attrs.get("data-id") for attrs in reader.of("details")}
