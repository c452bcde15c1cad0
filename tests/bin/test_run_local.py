"""The local job runner: its calling convention, its logs, failures, and signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from espnet_latentasr.bin import run_local
from espnet_latentasr.bin.run_local import make_jobs

ROOT = Path(run_local.__file__).parents[2]
COMMAND = [sys.executable, "-m", "espnet_latentasr.bin.run_local"]


def run(*words: object, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_array_with_logs(tmp_path):
    log = tmp_path / "new" / "folder" / "x.JOB.log"
    done = run("--mem", "4G", "--num-threads", 2, "JOB=2:4", log, "echo", "part JOB", "a'b\"$c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(p.name for p in log.parent.iterdir()) == ["x.2.log", "x.3.log", "x.4.log"]
    lines = (log.parent / "x.3.log").read_text().splitlines()
    assert lines[0].startswith("# echo 'part 3' ")
    assert lines[1].startswith("# Started at ") and lines[2] == "#"
    assert lines[3] == "part 3 a'b\"$c"
    assert lines[4].startswith("# Accounting: time=") and lines[4].endswith(" threads=2")
    assert lines[5].startswith("# Ended (code 0) at ") and len(lines) == 6


def test_one_job_and_its_output_of_both_kinds(tmp_path):
    done = run(tmp_path / "y.log", "bash", "-c", "echo out; echo err >&2; read x || echo no stdin")
    assert done.returncode == 0
    assert (tmp_path / "y.log").read_text().splitlines()[3:6] == ["out", "err", "no stdin"]


def test_failures_are_named_and_the_others_go_on(tmp_path):
    script = "for n in $(seq 30); do echo line $n; done; touch JOB.done; exit $((JOB % 2 * 3))"
    done = run("JOB=1:4", tmp_path / "f.JOB.log", "bash", "-c", f"cd {tmp_path}; {script}")
    assert done.returncode == 1
    assert len(list(tmp_path.glob("*.done"))) == 4
    first, second, *tail = done.stderr.splitlines()
    assert first == (
        f"run_local: 2 of 4 jobs failed, logs: {tmp_path}/f.1.log, {tmp_path}/f.3.log"
    )
    assert second == f"--- last lines of {tmp_path}/f.1.log"
    assert len(tail) == 20 and tail[0] == "line 13" and tail[-1].startswith("# Ended (code 3)")


def test_a_job_that_fails_once_is_run_again_alone(tmp_path):
    """Job 2 fails at first, job 3 always; 1 and 4 are run once."""
    script = (
        "echo JOB >>order; [ JOB = 3 ] && exit 7; "
        "[ JOB = 2 ] && [ ! -e once ] && touch once && kill -9 $$; echo good JOB"
    )
    log = tmp_path / "f.JOB.log"
    done = run("--num-tries", 3, "JOB=1:4", log, "bash", "-c", f"cd {tmp_path}; {script}")
    assert done.returncode == 1
    assert sorted((tmp_path / "order").read_text().split()) == list("1223334")
    assert f"{tmp_path}/f.2.log: failed (code 137), try 1 of 3; this job alone" in done.stderr
    assert f"run_local: 1 of 4 jobs failed, logs: {tmp_path}/f.3.log" in done.stderr
    logs = {path.name for path in tmp_path.glob("f.*")}
    tries = {"f.2.log.try1", "f.3.log.try1", "f.3.log.try2"}
    assert logs == {"f.1.log", "f.2.log", "f.3.log", "f.4.log"} | tries
    assert "good 2" in (tmp_path / "f.2.log").read_text()
    assert "# Ended (code 137)" in (tmp_path / "f.2.log.try1").read_text()
    (tmp_path / "once").unlink()
    done = run("--num_tries", 2, "JOB=1:2", log, "bash", "-c", f"cd {tmp_path}; {script}")
    assert done.returncode == 0, "the second try was good"


def test_missing_command(tmp_path):
    done = run("--num_tries", 2, tmp_path / "m.log", "no-such-command")
    assert done.returncode == 1
    assert "no-such-command: No such file or directory" in done.stderr
    assert "# Ended (code 127)" in (tmp_path / "m.log").read_text()


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "a log file and a command expected"),
        (["x.log"], "a log file and a command expected"),
        (["JOB=1:3", "x.log", "true"], "x.log: must contain JOB"),
        (["JOB=3:1", "x.JOB.log", "true"], "an empty range"),
        (["--surprise", "1", "x.log", "true"], "unrecognized arguments: --surprise"),
        (["--max_jobs_run", "0", "x.log", "true"], "at least 1"),
        (["--num_tries", "0", "x.log", "true"], "at least 1"),
    ],
)
def test_wrong_usage(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        run_local.main(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_make_jobs():
    assert [job.log.name for job in make_jobs("TASK=7 a.TASK.log echo TASK".split())] == ["a.7.log"]
    assert make_jobs("a.log echo x=1:2".split())[0].command == ["echo", "x=1:2"]


def test_jobs_at_a_time(tmp_path):
    script = "echo start >>order; sleep 0.15; echo end >>order"
    run("--max_jobs_run", 1, "J=1:3", tmp_path / "J.log", "bash", "-c", f"cd {tmp_path}; {script}")
    assert (tmp_path / "order").read_text().split() == ["start", "end"] * 3


@pytest.mark.parametrize("gpu, expected", [(1, ["0", "1", "2"]), (2, ["0,1", "0,1", "0,1"])])
def test_every_job_has_its_own_gpus(tmp_path, gpu, expected):
    """Three jobs that wait for each other where the GPUs suffice for three at a time."""
    wait = "sleep 0.3; " if gpu == 1 else ""
    done = run("--gpu", gpu, "JOB=1:3", tmp_path / "g.JOB.log", "bash", "-c",
               wait + "echo gpu=$CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="0,1,2")  # fmt: skip
    assert done.returncode == 0
    logs = [(tmp_path / f"g.{n}.log").read_text().splitlines()[3] for n in (1, 2, 3)]
    assert logs == [f"gpu={devices}" for devices in expected]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_processes(tmp_path, number):
    script = f"sleep 61 & echo $! >{tmp_path}/JOB.pid; sleep 62"
    runner = subprocess.Popen(
        [*COMMAND, "--max_jobs_run", "2", "JOB=1:3", f"{tmp_path}/s.JOB.log", "bash", "-c", script],
        cwd=ROOT,
        # A shell starts background jobs, and so perhaps this test, with SIGINT switched off.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not all((tmp_path / f"{n}.pid").exists() for n in (1, 2)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.1)
    runner.send_signal(number)
    assert runner.wait(timeout=20) == 128 + number
    assert f"stopped by signal {int(number)}" in runner.stderr.read()
    runner.stderr.close()
    for n in (1, 2):
        assert not alive(int((tmp_path / f"{n}.pid").read_text()))
        assert f"# Ended (code {128 + signal.SIGTERM})" in (tmp_path / f"s.{n}.log").read_text()
    assert not (tmp_path / "s.3.log").exists()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_nothing_but_the_standard_library():
    code = (
        "import sys, espnet_latentasr.bin.run_local;"
        "print({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() in ("{'espnet_latentasr'}", "{'espnet_latentasr', '__main__'}",
                                   "{'__main__', 'espnet_latentasr'}")  # fmt: skip


def test_an_interactive_terminal_sees_progress_and_a_log_file_does_not(tmp_path, monkeypatch, capsys):
    jobs = run_local.make_jobs([str(tmp_path / "x.log"), "sh", "-c", "echo INFO: half way; sleep 1.3"])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run_local.run_jobs(jobs, 1, 1, 0, run_local.StopFlag()) == []
    shown = capsys.readouterr().err
    assert "0/1 jobs" in shown and "half way" in shown and shown.endswith("\033[K")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    jobs = run_local.make_jobs([str(tmp_path / "y.log"), "true"])
    assert run_local.run_jobs(jobs, 1, 1, 0, run_local.StopFlag()) == []
    assert capsys.readouterr().err == ""
