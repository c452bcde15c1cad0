"""Run a command, or an array of them, on this machine, each with its own log.

The calling convention is that of Kaldi's and ESPnet's job scripts (run.pl, slurm.pl, ...):

    run_local [options] [JOB=1:4] exp/logdir/x.JOB.log command --part JOB ...

``JOB`` is replaced in the log's name and in every argument.  Arguments reach the command as they
are, without a shell in between.  When a job fails, the others go on, the end of its log is shown,
and the exit code is 1; with ``--num_tries`` it alone is run again first.  This file is longer than
other commands because it stands alone: it imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

TAIL_LINES = 20
POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0
ARRAY = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<first>\d+)(?::(?P<last>\d+))?")


@dataclass
class Job:
    """One element of the array: its log, its command and, once started, its process."""

    number: int
    log: Path
    command: list[str]
    env: dict[str, str] | None = None
    process: subprocess.Popen | None = None
    started: float = 0.0
    threads: int = 1
    tries: int = 0
    stream: BinaryIO | None = field(default=None, repr=False)

    def start(self, threads: int) -> None:
        """Write the head of the log and start the command in a process group of its own."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.tries:  # not x.log: what reads all logs must not count a failed try
            os.replace(self.log, f"{self.log}.try{self.tries}")
        self.threads, self.started, self.tries = threads, time.time(), self.tries + 1
        self.stream = open(self.log, "wb")
        self._write(f"# {shlex.join(self.command)}\n# Started at {time.ctime()}\n#\n")
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self.stream,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
                preexec_fn=die_with_runner if sys.platform == "linux" else None,
            )
        except OSError as error:
            self._write(f"{self.command[0]}: {error.strerror}\n")

    def code(self) -> int | None:
        """Exit code, None while running; a shell's codes for a signal or a missing command."""
        if self.process is None:
            return 127
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def finish(self, code: int) -> None:
        """Write the foot of the log."""
        elapsed = round(time.time() - self.started)
        self._write(
            f"# Accounting: time={elapsed} threads={self.threads}\n"
            f"# Ended (code {code}) at {time.ctime()}, elapsed time {elapsed} seconds\n"
        )
        self.stream.close()

    def signal(self, number: int) -> None:
        """Send a signal to the command and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                os.killpg(self.process.pid, number)

    def _write(self, text: str) -> None:
        self.stream.seek(0, os.SEEK_END)
        self.stream.write(text.encode())
        self.stream.flush()


def die_with_runner() -> None:
    """In a job that is about to start: have the kernel kill it when the runner is killed (Linux).

    A killed runner cannot end its jobs, and a job without its runner would go on writing beside the
    next run's.
    """
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG


class StopFlag:
    """The first signal that told the runner to end; 0 while there is none."""

    def __init__(self) -> None:
        self.signal = 0

    def catch(self) -> None:
        """Note these signals from now on, except those that nohup or a shell have switched off."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number


def get_parser() -> argparse.ArgumentParser:
    """Return the options; cluster options that mean nothing here are accepted and ignored."""
    parser = argparse.ArgumentParser(
        prog="run_local",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="run_local [options] [JOB=1:n] LOG COMMAND [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument("--gpu", type=int, default=0, help="GPUs per job")
    parser.add_argument("--num_threads", "--num-threads", type=int, default=1, help="per job")
    parser.add_argument(
        "--max_jobs_run", "--max-jobs-run", type=int,
        help="jobs at a time; default: cores / num_threads, or as many as the GPUs allow",
    )  # fmt: skip
    parser.add_argument(
        "--num_tries", "--num-tries", type=int, default=1,
        help="times that a job is run before it counts as failed; logs of failed tries: LOG.try1 ...",
    )  # fmt: skip
    for name in ("--mem", "--time", "--config", "--name"):
        parser.add_argument(name, help="for cluster back ends; ignored here")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def make_jobs(words: Sequence[str]) -> list[Job]:
    """Read ``[JOB=1:n] LOG COMMAND ...``.

    >>> [(job.log.name, job.command) for job in make_jobs("J=2:3 x.J.log echo J".split())]
    [('x.2.log', ['echo', '2']), ('x.3.log', ['echo', '3'])]
    """
    array = ARRAY.fullmatch(words[0]) if words else None
    log, *command = words[1:] if array else words or [""]
    if not log or not command:
        raise ValueError("a log file and a command expected; see --help")
    if array is None:
        return [Job(1, Path(log), command)]
    name, first = array["name"], int(array["first"])
    last = int(array["last"] or first)
    if first > last:
        raise ValueError(f"{array[0]}: an empty range of jobs")
    if last > first and name not in log:
        raise ValueError(f"{log}: must contain {name}, or all jobs would write one log")
    return [
        Job(n, Path(log.replace(name, str(n))), [word.replace(name, str(n)) for word in command])
        for n in range(first, last + 1)
    ]


def visible_gpus() -> list[str]:
    """Names for ``CUDA_VISIBLE_DEVICES``: those it has now, else all that nvidia-smi lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    if "MIG" in listing.stdout:  # slices have names of their own; leave the choice to CUDA
        return []
    return [str(n) for n, _ in enumerate(re.findall(r"^GPU ", listing.stdout, re.MULTILINE))]


def show_progress(done: int, total: int, begun: float, running: dict[int, Job]) -> None:
    """Rewrite one line of an interactive terminal: jobs done, seconds, the end of a running log."""
    log = next(iter(running.values())).log
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 500))
        lines = file.read().decode("utf-8", "replace").splitlines()
    last = re.sub(r"^.*? (INFO|WARNING|ERROR): ", "", lines[-1])[:70] if lines else ""
    seconds = round(time.time() - begun)
    print(f"\r\033[K{done}/{total} jobs, {seconds} s  {last}", end="", file=sys.stderr, flush=True)


def run_jobs(
    jobs: Sequence[Job], max_jobs: int, threads: int, gpus: int, stop: StopFlag, tries: int = 1
) -> list[Job]:
    """Run all jobs, at most ``max_jobs`` at a time, until ``stop``; return those that failed.

    A job fails when ``tries`` runs of it have.

    With GPUs, every slot keeps to its own ones, if there are enough to tell the slots apart.
    """
    begun, shown = time.time(), 0.0
    names = visible_gpus() if gpus and len(jobs) > 1 else []
    slots = [names[n : n + gpus] for n in range(0, len(names) - gpus + 1, gpus)] if names else []
    waiting, failed = list(jobs), []
    running: dict[int, Job] = {}
    try:
        while (waiting or running) and not stop.signal:
            for slot in range(max_jobs):
                if slot not in running and waiting:
                    job = running[slot] = waiting.pop(0)
                    if slots:
                        devices = ",".join(slots[slot % len(slots)])
                        job.env = {**os.environ, "CUDA_VISIBLE_DEVICES": devices}
                    job.start(threads)
            for slot, job in list(running.items()):
                if (code := job.code()) is not None:
                    job.finish(code)
                    del running[slot]
                    if code != 0 and job.tries < tries and job.process is not None:
                        print(
                            f"run_local: {job.log}: failed (code {code}), try {job.tries} of {tries}; "
                            "this job alone is run again",
                            file=sys.stderr,
                        )
                        waiting.append(job)
                    elif code != 0:
                        failed.append(job)
            if running and sys.stderr.isatty() and time.time() - shown >= 1:
                shown = time.time()
                show_progress(len(jobs) - len(waiting) - len(running), len(jobs), begun, running)
            time.sleep(POLL_SECONDS)
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        end_jobs(list(running.values()))
    return failed


def end_jobs(jobs: Sequence[Job]) -> None:
    """End jobs and their children: politely, then, after some seconds, for good."""
    for job in jobs:
        job.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(job.code() is None for job in jobs) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for job in jobs:
        job.signal(signal.SIGKILL)
        if job.process is not None:
            job.process.wait()
        job.finish(job.code())


def log_tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 400 * lines))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])


def main(cmd: Sequence[str] | None = None) -> int:
    """Run the command; ``cmd`` replaces ``sys.argv``; returns the exit code."""
    parser = get_parser()
    args = parser.parse_args(cmd)
    try:
        jobs = make_jobs(args.rest)
    except ValueError as error:
        parser.error(str(error))
    at_a_time = 1 if args.max_jobs_run is None else args.max_jobs_run
    if min(args.num_threads, args.gpu + 1, at_a_time, args.num_tries) < 1:
        parser.error("--num_threads, --max_jobs_run, --num_tries must be at least 1, --gpu at least 0")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    at_once = max(1, cores // args.num_threads)
    if args.gpu:
        at_once = max(1, len(visible_gpus()) // args.gpu)
    stop = StopFlag()
    stop.catch()
    max_jobs = args.max_jobs_run or at_once
    failed = run_jobs(jobs, max_jobs, args.num_threads, args.gpu, stop, args.num_tries)
    if stop.signal:
        print(f"run_local: stopped by signal {stop.signal}, jobs ended", file=sys.stderr)
        return 128 + stop.signal
    if failed:
        failed.sort(key=lambda job: job.number)
        logs = ", ".join(str(job.log) for job in failed)
        print(f"run_local: {len(failed)} of {len(jobs)} jobs failed, logs: {logs}", file=sys.stderr)
        print(f"--- last lines of {failed[0].log}\n{log_tail(failed[0].log)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
