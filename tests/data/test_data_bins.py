"""The data commands: exit codes, one summary line, and results that do not depend on --nj."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from espnet_latentasr.bin import add_noise, filter_length, fix_data_dir, format_wav
from espnet_latentasr.bin import validate_data_dir as validate
from espnet_latentasr.bin._common import job_map, run_main, str2bool
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.errors import ConfigError, DataError

ROOT = Path(add_noise.__file__).parents[2]


def test_pipeline(tmp_path, good_dir, capsys):
    noisy, dump, train = (str(tmp_path / name) for name in ("noisy", "dump", "train"))
    add_noise.main(["--data_dir", str(good_dir), "--output_dir", noisy, "--mixed_snr", "clean 5"])
    format_wav.main(["--data_dir", noisy, "--output_dir", dump, "--kind", "train"])
    filter_length.main(
        ["--data_dir", dump, "--output_dir", train, "--kind", "train", "--max_wav_duration", "20"]
    )
    validate.main([train])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"{noisy}: 5 utterances, per SNR in dB: clean=")
    assert lines[1].startswith(f"{dump}: 5 utterances in, 5 out (0 reused, 5 with their own file")
    assert (
        lines[2] == f"{train}: 5 utterances in, 5 out, dropped too_long=0 too_short=0 empty_text=0"
    )
    assert lines[3] == f"{train}: valid, 5 utterances, 5 audio files, 5 speakers, languages: 1"


def test_fix(tmp_path, good_dir, capsys, caplog):
    with open(good_dir / "text", "a", encoding="utf-8") as text:
        text.write("a0 late\n")
    with pytest.raises(DataError, match="sort with LC_ALL=C"):
        validate.main([str(good_dir)])
    fix_data_dir.main([str(good_dir), str(tmp_path / "fixed")])
    assert "5 utterances kept, 1 entries dropped" in capsys.readouterr().out
    validate.main([str(tmp_path / "fixed")])


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", *map(str, args)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_error_is_one_line(tmp_path, bad_dir):
    done = run("espnet_latentasr.bin.format_wav", "--data_dir", bad_dir, "--output_dir",
               tmp_path / "dump", "--kind", "test")  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if " ERROR: " in line]
    assert len(errors) == 1
    assert "8 of 10 utterances are unusable" in errors[0]
    assert "finished with 0 warnings, 1 errors" in done.stderr


def test_result_is_the_same_for_any_nj(tmp_path, good_dir, files_of):
    copies = []
    for nj in (1, 2):
        done = run("espnet_latentasr.bin.add_noise", "--data_dir", good_dir, "--output_dir",
                   tmp_path / "noisy", "--snr", "0", "--seed", "1", "--nj", nj)  # fmt: skip
        assert done.returncode == 0, done.stderr
        copies.append(files_of(tmp_path / "noisy"))
        (tmp_path / "noisy").rename(tmp_path / f"nj{nj}")
    assert copies[0] == copies[1]
    assert KaldiDir.load(good_dir).utts == ["a1", "a2", "b1", "b2", "c1"]


def test_job_map():
    for nj in (1, 2):
        with job_map(nj) as map_fn:
            assert list(map_fn(str, range(20))) == [str(i) for i in range(20)]
    with pytest.raises(ConfigError, match="--nj 0"), job_map(0):
        pass


def test_killed_command_leaves_no_process(tmp_path):
    code = (
        "import os, signal\n"
        "from espnet_latentasr.bin._common import job_map\n"
        "if __name__ == '__main__':\n"
        "    with job_map(2) as map_fn:\n"
        "        list(map_fn(str, range(9)))\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "command.py").write_text(code)
    # The workers share the command's stdout, so reading it to its end waits for them too.
    done = subprocess.run(
        [sys.executable, tmp_path / "command.py"], env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("error", [DataError("x\ny"), ConfigError("x")])
def test_run_main(error, caplog):
    def main():
        raise error

    with pytest.raises(SystemExit) as caught:
        run_main(main)
    assert caught.value.code == 1
    assert caplog.records[-1].getMessage() in ("x y", "x")
    with pytest.raises(SystemExit) as caught:
        run_main(lambda: None)
    assert caught.value.code == 0
    with pytest.raises(KeyError):
        run_main({}.popitem)


def test_option_types():
    assert (str2bool("true"), str2bool("False")) == (True, False)
    for main, args in [
        (format_wav.main, ["--channel", "left"]),
        (validate.main, ["x", "--allow_empty_text", "maybe"]),
        (add_noise.main, ["--data_dir", "x", "--output_dir", "y", "--mixed_snr", "loud"]),
        (add_noise.main, ["--data_dir", "x", "--output_dir", "y"]),
    ]:
        with pytest.raises(SystemExit) as caught:
            main(args)
        assert caught.value.code == 2
    assert format_wav.channel_choice("none") is None
    assert format_wav.channel_choice("1") == 1
