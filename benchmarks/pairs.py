"""What the method costs, side by side with the library's own way: ``python benchmarks/pairs.py --help``.

Each row is a pair of calls that do the same job.  Both are run in turn, the order changing from
repeat to repeat, and the ratio of each repeat is taken, so that a slow minute of the machine meets both.
On a CPU the clock is the CPU time of this process (other work on the machine lengthens the wall time of
whoever runs then); on a GPU it is the wall time, synchronised.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from shapes_06b import TEXT, random_backbone

from espnet_latentasr.adaptation.base import TrainBatch
from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import (
    BackboneConfig,
    DecodeConfig,
    PromptConfig,
    build,
    load_yaml,
    model_config,
)
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.decode.recogniser import Clips, Recogniser, token_cap
from espnet_latentasr.decode.sampling import SamplingRule, sample
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.latent.losses import token_scores

RECIPE = Path(__file__).parents[1] / "egs2/latentasr/asr1"


@dataclass(frozen=True)
class Pair:
    """Two ways to the same result; ``bar``: the ratio ours / other that is aimed at."""

    name: str
    ours: Callable[[], object]
    other: Callable[[], object]
    bar: float


@dataclass(frozen=True)
class Bench:
    """A recogniser with an untrained method, and clips for it."""

    backbone: Backbone
    method: LatentMethod
    recogniser: Recogniser
    clips: list[np.ndarray]
    texts: list[str]
    new_tokens: int | None  # fixed number of tokens; None: until the end token

    def rule(self, **keys) -> DecodeConfig:
        if self.new_tokens is not None:
            keys |= {"tokens_per_second": 0.0, "tokens_extra": self.new_tokens}
        return build(DecodeConfig, keys)

    def ours(self, clips: list[np.ndarray], *rules: DecodeConfig) -> list[list[str]]:
        found = self.recogniser.recognise(Clips(clips, ["en"] * len(clips)), list(rules))
        return [[result.text for result in results] for results in found]

    def generate(self, clips: list[np.ndarray], **options) -> list[str]:
        """The library's own greedy search on the same model, features included."""
        inputs = self.backbone.processor.apply_transcription_request(audio=clips, language="English")
        device, dtype = self.backbone.embedding_table.device, self.backbone.embedding_table.dtype
        inputs = inputs.to(device, dtype)
        longest = self.new_tokens or max(token_cap(len(clip), self.rule()) for clip in clips)
        options = {"do_sample": False, "num_beams": 1, **options}
        if self.new_tokens is not None:
            options["min_new_tokens"] = self.new_tokens
        with torch.inference_mode():
            out = self.backbone.model.generate(**inputs, max_new_tokens=longest, **options)
        ends = set(self.backbone.end_ids)
        rows = out[:, inputs["input_ids"].shape[1] :].tolist()
        return [self.backbone.text.detokenize([t for t in row if t not in ends]) for row in rows]


class Recomputing:
    """Wraps a recogniser's ``_forward``: every operation reads everything before it anew."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.cached, self.copied = backbone, backbone._forward, backbone._copied

    def __enter__(self) -> None:
        def forward(embeds, mask, positions, cache):
            whole, where = embeds, positions
            if hasattr(cache, "read"):
                columns = cache.get_seq_length()  # some may have been cut meanwhile
                whole = torch.cat([cache.read[0][:, :columns], embeds], 1)
                where = torch.cat([cache.read[1][:, :columns], positions], 1)
            fresh = self.backbone._new_cache()
            hidden = self.cached(whole, mask, where, fresh)
            cache.layers, cache.read = fresh.layers, (whole, where)
            cache.made_by += fresh.made_by[-1:] * embeds.shape[1]
            return hidden[:, -embeds.shape[1] :]

        def copied(cache, pick):
            new = self.copied(cache, pick)
            new.read = tuple(pick(part) for part in cache.read)
            return new

        self.backbone._forward, self.backbone._copied = forward, copied

    def __exit__(self, *_) -> None:
        del self.backbone._forward, self.backbone._copied


def mini_bench(args: argparse.Namespace, steps: int) -> Bench:
    backbone = load_backbone(BackboneConfig(name=str(args.mini_backbone)))
    data = KaldiDir.load(args.data_dir)
    utts = c_sorted(data.text)[: args.utterances]
    clips = [read_audio(data.wav[utt], utt) for utt in utts]
    return bench_of(backbone.to(args.device), clips, [data.text[utt] for utt in utts], None, steps)


def full_bench(args: argparse.Namespace, steps: int) -> Bench:
    backbone = random_backbone(getattr(torch, args.dtype), args.device)
    rng = np.random.default_rng(0)
    seconds = rng.uniform(4, 12, args.utterances)
    clips = [0.1 * rng.standard_normal(int(16000 * s)).astype(np.float32) for s in seconds]
    backbone.end_ids = (-1,)  # random weights: every text is as long as it may be
    return bench_of(backbone, clips, [TEXT] * len(clips), 30, steps)


def bench_of(backbone, clips, texts, new_tokens, steps) -> Bench:
    keys = load_yaml(RECIPE / "conf/train_latent_paper.yaml")
    sections = {name: keys.get(f"{name}_conf") for name in ("prompt", "latent", "value", "loss")}
    sections["latent"] = sections["latent"] | {"steps": steps}
    method = LatentMethod(model_config("latent", sections), backbone)
    method.place(backbone.embedding_table.device)
    return Bench(backbone, method, Recogniser(backbone, method, PromptConfig()), clips, texts, new_tokens)


def decode_pairs(bench: Bench, sizes: list[int], samples: int) -> Iterator[Pair]:
    """Decoding against the library's generate."""
    one = bench.clips[:1]
    never, always = (bench.rule(halting={"kind": kind}) for kind in ("never", "always"))
    skip = bench.rule(halting={"kind": "threshold", "theta": 1e9})
    bare = Recogniser(bench.backbone, None, PromptConfig())

    def frozen(clips):
        return bare.recognise(Clips(clips, ["en"] * len(clips)), [never])

    yield Pair("all skipped / generate, batch 1", lambda: bench.ours(one, skip),
               lambda: bench.generate(one), 1.02)  # fmt: skip
    yield Pair("N = 4 forced / generate, batch 1", lambda: bench.ours(one, always),
               lambda: bench.generate(one), 1.12)  # fmt: skip
    yield Pair("frozen / generate, batch 1", lambda: frozen(one), lambda: bench.generate(one), 1.0)
    theta = bench.rule(halting={"kind": "threshold", "theta": 0.0})
    for size in sizes:
        some = bench.clips[:size]
        yield Pair(f"theta = 0 / generate, batch {size}", lambda some=some: bench.ours(some, theta),
                   lambda some=some: bench.generate(some), 1.05)  # fmt: skip
        yield Pair(f"frozen / generate, batch {size}", lambda some=some: frozen(some),
                   lambda some=some: bench.generate(some), 1.0)  # fmt: skip
    whole = bench.rule(halting={"kind": "always"}, depths="all")
    fixed = [never, *(bench.rule(halting={"kind": "fixed", "steps": k}) for k in range(1, 5))]
    yield Pair("all depths 0..4 / five decodes", lambda: bench.ours(one, whole),
               lambda: [bench.ours(one, rule) for rule in fixed], 0.45)  # fmt: skip
    caps = [bench.new_tokens or token_cap(len(one[0]), bench.rule())]

    def draw():
        with torch.inference_mode():
            prompt = bench.backbone.text.prompt("en", PromptConfig())
            state = bench.backbone.prefill(bench.backbone.encode(one), [prompt])
            return sample(bench.backbone, state, caps, [list(range(samples))], SamplingRule())

    options = {"do_sample": True, "top_k": 0, "num_return_sequences": samples}
    yield Pair(f"{samples} samples / generate", draw, lambda: bench.generate(one, **options), 0.5)


def training_pair(bench: Bench, size: int) -> Pair:
    """One step on cached audio embeddings against encoder, prompt, latents and baseline each in full."""
    backbone, clips = bench.backbone, (bench.clips * size)[:size]
    prompts = [backbone.text.prompt("en", PromptConfig())] * size
    ids = [[*backbone.text.tokenize(text), backbone.text.end_id] for text in (bench.texts * size)[:size]]

    def baseline(encoded):
        with torch.no_grad():
            state = backbone.prefill(encoded, prompts, None, True)
            return token_scores(*teacher_force(backbone, state, ids), size)

    def step(encoded, scores):
        batch = TrainBatch(encoded, prompts, ids, *scores)
        loss, _ = bench.method.loss(batch, 0.0, torch.Generator().manual_seed(1))
        loss.backward()
        return loss

    encoded = backbone.encode(clips)
    scores = baseline(encoded)

    def in_full():
        with Recomputing(backbone):
            again = backbone.encode(clips)
            return step(again, baseline(again))

    return Pair(f"training step, batch {size} / recomputed", lambda: step(encoded, scores), in_full, 0.35)


def clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(pair: Pair, repeats: int, device: str, warm_up: bool) -> dict:
    """Seconds of both and the ratio of every repeat; with ``warm_up`` one unmeasured repeat first."""
    if warm_up:
        pair.ours(), pair.other()
    seconds: dict[str, list[float]] = {"ours": [], "other": []}
    for turn in range(repeats):
        for side in ("ours", "other") if turn % 2 == 0 else ("other", "ours"):
            started = clock(device)
            getattr(pair, side)()
            seconds[side].append(clock(device) - started)
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["other"])]
    ours, other = (statistics.median(seconds[side]) for side in ("ours", "other"))
    return {
        "name": pair.name, "ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios),
        "ours": ours, "other": other, "bar": pair.bar,
    }  # fmt: skip


def check_texts(bench: Bench, size: int) -> str:
    """Are the texts of a batch those of each clip alone, and the library's?"""
    some, never = bench.clips[:size], bench.rule(halting={"kind": "never"})
    theta = bench.rule(halting={"kind": "threshold", "theta": 0.0})
    batched, alone = bench.ours(some, theta)[0], [bench.ours([clip], theta)[0][0] for clip in some]
    library = [bench.generate([clip])[0] for clip in some]
    equal = sum(a == b for a, b in zip(batched, alone))
    frozen = sum(a == b for a, b in zip(bench.ours(some, never)[0], library))
    return f"of {size}: {equal} texts equal to batch 1 at theta = 0, {frozen} frozen ones to generate"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shapes", choices=["mini", "0.6b"], default="mini")
    add("--mini_backbone", type=Path, default=RECIPE / "local/mini_backbone")
    add("--data_dir", type=Path, default=RECIPE / "dump/raw/test_text", help="clips for mini")
    add("--utterances", type=int, default=16)
    add("--batch_size", type=int, nargs="*", default=[8, 16])
    add("--train_batch_size", type=int, default=16)
    add("--samples", type=int, default=64)
    add("--repeats", type=int, default=5)
    add("--warm_up", action=argparse.BooleanOptionalAction, default=True)
    add("--only", default="", help="rows whose name contains this")
    add("--dtype", choices=["float32", "bfloat16"], default="float32")
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    add("--out", type=Path, help="the table, as Markdown")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bench = (mini_bench if args.shapes == "mini" else full_bench)(args, steps=4)
    pairs = [*decode_pairs(bench, args.batch_size, args.samples)]
    if args.train_batch_size:
        pairs.append(training_pair(bench, args.train_batch_size))
    unit = "CPU s" if args.device == "cpu" else "s"
    lines = [
        f"| pair | ratio [range of {args.repeats}] | ours, {unit} | other, {unit} | bar |",
        "|---|---|---|---|---|",
    ]
    form = "| {name} | {ratio:.3f} [{low:.3f}, {high:.3f}] | {ours:.3f} | {other:.3f} | {bar} |"
    print("\n".join(lines))
    for pair in pairs:
        if args.only not in pair.name:
            continue
        row = measure(pair, args.repeats, args.device, args.warm_up)
        lines.append(form.format(**row))
        print(lines[-1], flush=True)
    if args.shapes == "mini" and not args.only:
        lines += ["", check_texts(bench, args.utterances)]
        print(lines[-1])
    if args.out is not None:
        atomic_write_text(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
