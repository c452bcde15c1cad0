"""Files are whole or not there."""

import pytest

from espnet_latentasr.fileio import atomic_path, atomic_write_text


def test_whole_file_in_a_new_folder(tmp_path):
    path = tmp_path / "new" / "a.txt"
    atomic_write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "a.txt"
    atomic_write_text(path, "old")

    def interrupted():
        with atomic_path(path) as temporary:
            assert temporary.parent == tmp_path
            temporary.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
