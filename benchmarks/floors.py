"""The least a path can cost, from the model's sizes and this machine: ``python benchmarks/floors.py``.

Work is counted in floating-point operations (2 per multiplication-addition) and in bytes of weights and
keys that must be read; the floor in seconds is the larger of the two over what this machine reaches in a
large matrix product and in reading memory (both measured here, one thread unless told).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
from shapes_06b import config_06b

from espnet_latentasr.backbone.mini import build_tokenizer

PROMPT_WORDS = 20  # prompt tokens that are not audio, and language line


@dataclass(frozen=True)
class Sizes:
    """What the counts need of a Qwen3-ASR configuration."""

    layers: int
    width: int
    attention: int  # width of all query heads
    keys: int  # width of keys and values together
    mlp: int
    vocabulary: int
    audio_layers: int
    audio_width: int
    audio_mlp: int
    conv: int
    mels: int

    @property
    def decoder(self) -> int:
        """Parameters of the decoder's layers that a position passes."""
        projections = self.width * (2 * self.attention + self.keys)
        return self.layers * (projections + 3 * self.width * self.mlp)

    @property
    def head(self) -> int:
        return self.width * self.vocabulary

    @property
    def encoder(self) -> int:
        return self.audio_layers * (4 * self.audio_width**2 + 2 * self.audio_width * self.audio_mlp)


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, count: float) -> Work:
        return Work(self.flops * count, self.bytes * count)

    def seconds(self, flops: float, bandwidth: float) -> float:
        return max(self.flops / flops, self.bytes / bandwidth)


def sizes_of(config) -> Sizes:
    text, audio = config.text_config, config.audio_config
    return Sizes(
        text.num_hidden_layers, text.hidden_size, text.num_attention_heads * text.head_dim,
        2 * text.num_key_value_heads * text.head_dim, text.intermediate_size, text.vocab_size,
        audio.encoder_layers, audio.d_model, audio.encoder_ffn_dim, audio.downsample_hidden_size,
        audio.num_mel_bins,
    )  # fmt: skip


def encode(s: Sizes, seconds: float, number: int) -> Work:
    """Convolutions over 100 frames a second (three of stride 2), then 13 positions a second."""
    frames, bins, channels, conv, weights = 100, s.mels, 1, 0.0, 0
    for _ in range(3):
        frames, bins = -(-frames // 2), -(-bins // 2)
        conv += 2 * frames * bins * s.conv * channels * 9
        weights += s.conv * channels * 9
        channels = s.conv
    conv += 2 * 13 * s.conv * bins * s.audio_width
    return Work(seconds * (conv + 13 * 2 * s.encoder), number * (s.encoder + weights))


def positions(s: Sizes, rows: int, new: int, before: float, number: int, head: int) -> Work:
    """``new`` positions of ``rows`` utterances that have ``before`` positions in the cache.

    head: positions per row whose logits are computed.
    """
    seen = before + new / 2
    flops = rows * new * (2 * s.decoder + 4 * s.layers * s.attention * seen) + 2 * rows * head * s.head
    read = s.decoder + (s.head if head else 0) + rows * s.layers * s.keys * before
    return Work(flops, number * read)


def paths(s: Sizes, seconds: float, tokens: int, rows: int, number: int) -> dict[str, Work]:
    """Work of a batch of clips of equal length, by stage."""
    prompt = 13 * seconds + PROMPT_WORDS
    token = positions(s, rows, 1, prompt + tokens / 2, number, 1)
    # h_1 comes with the prompt; commits and probes ride together, two positions a forward.
    loop = positions(s, rows, 2, prompt, number, 0).times(4)
    encoding = encode(s, seconds, number)
    return {
        "encode": Work(encoding.flops * rows, encoding.bytes),
        "prefill": positions(s, rows, round(prompt), 0, number, 1),
        "loop": loop,
        "tokens": token.times(tokens),
    }


def training_step(s: Sizes, seconds: float, tokens: int, rows: int, number: int) -> Work:
    """Prompt without gradient, four latent forwards and the transcript with it (backward: twice)."""
    prompt = 13 * seconds + PROMPT_WORDS
    frozen = positions(s, rows, round(prompt), 0, number, 0)
    loop = positions(s, rows, 2, prompt, number, 0).times(4)
    text = positions(s, rows, tokens, prompt, number, tokens)
    # Backward reaches activations only: as much again as the forward, no weight gradients.
    return frozen + (loop + text).times(2)


def machine(device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Operations and bytes per second that this machine reaches."""

    def clock() -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    size = 2048 if device == "cpu" else 8192
    a = torch.randn(size, size, dtype=dtype, device=device)
    large = torch.ones(2**28 if device == "cpu" else 2**31, dtype=dtype, device=device)
    best_product = best_read = float("inf")
    for _ in range(5):
        started = clock()
        a @ a
        best_product = min(best_product, clock() - started)
        started = clock()
        large.sum()
        best_read = min(best_read, clock() - started)
    return 2 * size**3 / best_product, large.numel() * large.element_size() / best_read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--seconds", type=float, default=10, help="of audio")
    add("--tokens", type=int, default=30)
    add("--rows", type=int, nargs="*", default=[1, 16])
    add("--dtype", choices=["float32", "bfloat16"], default="float32")
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    number = torch.finfo(dtype).bits // 8
    flops, bandwidth = machine(args.device, dtype)
    print(f"this machine: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s ({args.dtype})\n")
    s = sizes_of(config_06b(build_tokenizer(["x"], 300)))
    print("| | GFLOP | GB read | floor, s |\n|---|---|---|---|")
    for rows in args.rows:
        found = paths(s, args.seconds, args.tokens, rows, number)
        found["training step, N = 4"] = training_step(s, args.seconds, args.tokens, rows, number)
        for name, work in found.items():
            floor = work.seconds(flops, bandwidth)
            cells = f"{work.flops / 1e9:.1f} | {work.bytes / 1e9:.2f} | {floor:.2f}"
            print(f"| {name}, batch {rows} | {cells} |")
        frozen = sum(found[n].seconds(flops, bandwidth) for n in ("encode", "prefill", "tokens"))
        extra = found["loop"].seconds(flops, bandwidth)
        print(f"| N = 4 / frozen, batch {rows} | | | {1 + extra / frozen:.3f} |")


if __name__ == "__main__":
    main()
