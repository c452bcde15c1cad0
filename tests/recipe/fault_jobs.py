"""A process that does small jobs of every part that writes, and dies in them on demand.

It loads its model once, then forks for each job, so that an injected fault costs milliseconds.  Run by
test_faults.py: one request (a line of JSON) in, one answer out.  A fault is

    {"kill": k, "signal": 9}   dies right before its k-th change of the job's folder
    {"cut": n}                 dies in the midst of a write, when a file reaches n bytes
    {"full": n}                no file can grow beyond n bytes: what a full disk does, an error
    {"readonly": true}         the folder may not be written
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.symlink", "os.link", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR
CONF = HERE.parents[1] / "egs2/latentasr/asr1/conf"
TEXTS = ("turn on the light", "call ann", "seven five nine zero", "jan in the kitchen")


class Jobs:
    """What the jobs share: eight tones, a tiny frozen recogniser with an untrained adapter."""

    def __init__(self, root: Path) -> None:
        import soundfile
        import torch
        from conftest import CLIPS, build_tiny_model, make_clip

        from espnet_latentasr.adaptation.latent import LatentMethod
        from espnet_latentasr.bin import freeze_backbone
        from espnet_latentasr.config import DecodeConfig, ModelConfig, PromptConfig, build
        from espnet_latentasr.data.kaldi_dir import write_kaldi_table
        from espnet_latentasr.decode import baseline
        from espnet_latentasr.decode.job import Rule
        from espnet_latentasr.decode.loading import Loaded, load_recogniser
        from espnet_latentasr.decode.recogniser import Recogniser

        torch.set_num_threads(1)
        baseline.SHARD_UTTERANCES = 3
        self.root, self.data = root, root / "dump/tones"
        model, processor = build_tiny_model()
        model.save_pretrained(root / "tiny")
        processor.save_pretrained(root / "tiny")
        freeze_backbone.main(["--name", str(root / "tiny"), "--output_dir", str(root / "backbone")])
        self.data.mkdir(parents=True)
        ids = [f"utt{index}" for index in range(len(CLIPS))]
        for index, (utt_id, (samples, pitch)) in enumerate(zip(ids, CLIPS)):
            clip = make_clip(samples, pitch, index)
            soundfile.write(self.data / f"{utt_id}.wav", clip, 16000, "PCM_16")
        tables = {
            "wav.scp": {u: str(self.data / f"{u}.wav") for u in ids},
            "text": {u: TEXTS[index % 4] for index, u in enumerate(ids)},
            "hyp": {u: TEXTS[index % 3] for index, u in enumerate(ids)},
            "utt2lang": dict.fromkeys(ids, "en"),
            "utt2spk": {u: u for u in ids},
            "spk2utt": {u: u for u in ids},
        }
        for name, table in tables.items():
            write_kaldi_table(self.data / name, table)
        self.backbone = load_recogniser(root / "backbone").recogniser.backbone
        torch.manual_seed(0)
        method = LatentMethod(build(ModelConfig, {"latent": {"scale": {"init": 2.0}}}), self.backbone)
        recogniser = Recogniser(self.backbone, method, PromptConfig())
        self.loaded = Loaded(recogniser, "model", self.backbone.fingerprint)
        short = {"batch_size": 3, "tokens_per_second": 1.0, "tokens_extra": 4}
        always = {"halting": {"kind": "always"}} | short
        never = {"halting": {"kind": "never"}} | short
        self.rules = [
            Rule("decode_frozen", build(DecodeConfig, never)),
            Rule("decode_latent", build(DecodeConfig, always)),
        ]

    def stage6(self, out: Path) -> None:
        from espnet_latentasr.config import PromptConfig
        from espnet_latentasr.decode.baseline import baseline_pass

        baseline_pass(self.backbone, PromptConfig(), self.data, out, batch_size=2)

    def decode(self, out: Path) -> None:
        from espnet_latentasr.decode.job import run_job
        from espnet_latentasr.decode.merge import merge_jobs

        for job in (1, 2):
            run_job(self.loaded, self.rules, self.data, out, job, 2)
        for rule in self.rules:
            merge_jobs(out, rule.tag, self.data, 2)

    def nbest(self, out: Path) -> None:
        from espnet_latentasr.decode.nbest import NbestConfig
        from espnet_latentasr.decode.nbest_job import merge_nbest, run_nbest

        few = NbestConfig(samples=2, beam=2)
        shares = [out / f"nbest.{job}.jsonl" for job in (1, 2)]
        for job, share in enumerate(shares, 1):
            run_nbest(self.loaded, self.rules[0].config, few, self.data, share, job, 2)
        merge_nbest(shares, out / "nbest.jsonl")

    def format(self, out: Path) -> None:
        from espnet_latentasr.bin import format_wav

        format_wav.main(f"--data_dir {self.data} --output_dir {out} --kind train".split())

    def score(self, out: Path) -> None:
        from espnet_latentasr.bin import score

        words = f"--ref {self.data}/text --hyp {self.data}/hyp --lang en --nj 1 --replicates 100"
        score.main(f"{words} --output_dir {out}".split())

    def prepare_training(self) -> None:
        """Stage 6 and 10; nothing here computes a gradient, which a fork would not survive."""
        from espnet_latentasr.bin import latentasr_train

        cache, stats = self.root / "cache", self.root / "stats"
        self.stage6(cache)
        self.options = ["--backbone_dir", str(self.root / "backbone"), "--ngpu", "0", "--seed", "3"]
        self.options += ["--config", str(CONF / "train_latent.yaml"), "--num_workers", "0"]
        for part in ("train", "valid"):
            for place, name, kind in (
                (cache / "audio_embeds.scp", "speech_states", "kaldi_ark"),
                (self.data / "text", "text", "text"),
                (cache / "baseline", "baseline", "text_float"),
                (self.data / "utt2lang", "lang", "text"),
            ):
                self.options += [f"--{part}_data_path_and_name_and_type", f"{place},{name},{kind}"]
        shapes = [f"--{part}_shape_file={self.data / 'wav.scp'}" for part in ("train", "valid")]
        latentasr_train.main(
            [*self.options, *shapes, "--collect_stats", "true", "--output_dir", str(stats)]
        )
        for part in ("train", "valid"):
            self.options.append(f"--{part}_shape_file={stats / part / 'speech_states_shape'}")

    def train(self, out: Path, *extra: str) -> None:
        from espnet_latentasr.bin import latentasr_train

        words = "--resume true --batch_size 4 --max_epoch 3".split()
        latentasr_train.main([*self.options, "--output_dir", str(out), *words, *extra])


def drop_capabilities() -> None:
    """Let permissions hold for root as well."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)())


def install(out: Path, fault: dict, counted: int) -> None:
    """Make this process fail as ``fault`` says; the number of changes goes to descriptor ``counted``."""
    if "cut" in fault or "full" in fault:
        if "cut" in fault:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        size = fault.get("cut", fault.get("full"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if fault.get("readonly"):
        drop_capabilities()
    place, seen = str(out), 0
    above = str(out.parent)

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING:
                return
        elif event in CHANGES:
            path = arguments[1] if event in ("os.symlink", "os.link") else arguments[0]
        else:
            return
        if isinstance(path, int):
            return
        path = os.path.abspath(os.fsdecode(path))
        if path.startswith(f"{place}/") or path == place or path.startswith(f"{above}/.{out.name}"):
            seen += 1
            if seen == fault.get("kill"):
                os.kill(os.getpid(), fault.get("signal", signal.SIGKILL))
            if "cut" not in fault and "full" not in fault:
                os.pwrite(counted, str(seen).encode(), 0)

    sys.addaudithook(hook)


def perform(jobs: Jobs, request: dict, answer_to: Path) -> dict:
    """Fork, do a job with its fault, and report how it ended."""
    out = Path(request["out"])
    reader, writer = os.pipe()  # no file: a limit on the size of files must not be the log's
    counted = os.open(answer_to, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            install(out, request.get("fault", {}), counted)
            try:
                getattr(jobs, request["job"])(out, *request["extra"].split())
                code = 0
            except Exception as error:
                os.write(2, f"\n{type(error).__name__}: {error}".encode()[-2000:])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    found = os.pread(counted, 20, 0)
    os.close(counted)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "changes": int(found or 0),
        "log": text[-20000:],
    }


def main() -> None:
    root = Path(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    jobs = Jobs(root)
    print("ready", file=channel)
    for line in sys.stdin:
        request = json.loads(line)
        if request["job"] == "train" and not hasattr(jobs, "options"):
            jobs.prepare_training()
        print(json.dumps(perform(jobs, request, root / "answer")), file=channel)


if __name__ == "__main__":
    main()
