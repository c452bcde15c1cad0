"""The journal of a job: cut anywhere it goes on behind its last whole row, and it mixes no two kinds."""

from __future__ import annotations

import resource

import pytest

from espnet_latentasr.decode.journal import Journal
from espnet_latentasr.fileio import Busy, WriteError

IDENTITY = {"model": "é", "decode": 1}
ROWS = {"a": {"text": "müde", "p": -0.1}, "b": {"text": "", "p": 1e-300}, "c": {"x": [1, None]}}
KEYS = dict.fromkeys([*ROWS, "d"], "k")


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "new/folder/x.partial"
    with Journal(path, IDENTITY, KEYS) as journal:
        journal.add(list(ROWS.items())[:2])
        journal.add([("c", ROWS["c"])])
    return path


def test_rows_come_back_in_any_order_and_the_latest_counts(written):
    with Journal(written, IDENTITY, KEYS) as journal:
        assert [utt in journal for utt in "abcd"] == [True, True, True, False] and len(journal) == 3
        assert list(journal.read("cab")) == [ROWS["c"], ROWS["a"], ROWS["b"]]
        journal.add([("a", {"new": 1})])
        assert list(journal.read("a")) == [{"new": 1}]
    with Journal(written, IDENTITY, KEYS) as journal:
        assert list(journal.read("ac")) == [{"new": 1}, ROWS["c"]]
        journal.remove()
    assert not written.exists()


def test_cut_at_any_byte_it_goes_on_behind_the_last_whole_row(written):
    whole = written.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        written.write_bytes(whole[:cut])
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        with Journal(written, IDENTITY, KEYS) as journal:
            assert len(journal) == kept, cut
            journal.add(row for row in ROWS.items() if row[0] not in journal)
        assert written.read_bytes() == whole, cut


def test_a_damaged_row_costs_itself(written, caplog):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join([*lines[:2], b"\0" * 9 + b"\n", lines[3]]))
    with Journal(written, IDENTITY, KEYS) as journal:
        assert list(journal.read("ac")) == [ROWS["a"], ROWS["c"]] and "b" not in journal
    assert f"damaged at byte {len(lines[0] + lines[1])}" in caplog.text


def test_another_model_or_other_data_are_not_continued(written, caplog):
    with Journal(written, IDENTITY, KEYS | {"b": "new audio"}) as journal:
        assert [utt in journal for utt in "abc"] == [True, False, True]
    few = {"a": "k"}
    with Journal(written, IDENTITY, few) as journal:
        assert len(journal) == 1
    assert not caplog.text
    with Journal(written, IDENTITY | {"decode": 2}, KEYS) as journal:
        assert len(journal) == 0
    assert "begun anew" in caplog.text
    with Journal(written, IDENTITY, KEYS) as journal:
        assert len(journal) == 0, "the old rows are gone"


def test_two_processes_do_not_write_one_journal(written):
    with Journal(written, IDENTITY, KEYS):
        with pytest.raises(Busy, match="x.partial: another process is at work"):
            Journal(written, IDENTITY, KEYS)
    with Journal(written, IDENTITY, KEYS) as journal:
        assert len(journal) == 3, "the refused one changed nothing"


def test_a_full_disk_is_named_and_what_was_written_before_counts(written):
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(written, IDENTITY, KEYS) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (written.stat().st_size + 10, hard))
        try:
            with pytest.raises(WriteError, match="x.partial: cannot be written"):
                journal.add([("d", {"text": "x" * 99})])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        assert "d" not in journal
    with Journal(written, IDENTITY, KEYS) as journal:
        assert len(journal) == 3
        journal.add([("d", {"text": "y"})])
        assert list(journal.read("dc")) == [{"text": "y"}, ROWS["c"]]
