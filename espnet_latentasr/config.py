"""Configuration as data: frozen dataclasses, one YAML with an optional ``base:``; builds nothing.

Every key is declared here, in one file on purpose, with its default, its type and its choices.
Unknown keys and wrong types are errors that name the key, the file and the nearest valid key.  YAML's
own surprises are undone by the declared type: ``1e-4`` (a string to YAML) is accepted where a float is
declared, and ``no`` (false to YAML) is refused where a string is.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.reading import read_text

T = TypeVar("T")


def _within(where: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """Refuse a value outside [low, high], or (low, high] when ``above``; NaN is outside."""
    if not (low < value if above else low <= value) or not value <= high:
        bracket = "(" if above else "["
        raise ConfigError(f"{where}: {value!r} is outside {bracket}{low:g}, {high:g}]")


@dataclass(frozen=True)
class BackboneConfig:
    """The frozen recogniser. ``name``: local folder or hub id; a hub id needs ``revision``."""

    kind: str = "qwen3_asr"
    name: str = ""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class PromptConfig:
    """The prompt around the audio.

    ``language``: ``forced`` writes each utterance's own (utt2lang); with ``auto`` the recogniser writes
    its language line in decoding (training reads the utterance's own there).
    """

    language: Literal["forced", "auto"] = "forced"
    context: str = ""
    user_text: str = ""


@dataclass(frozen=True)
class ScaleConfig:
    """Step scales s_k = min(softplus(rho_k), cap). ``relative`` multiplies by the anchor's norm.

    ``lr``: learning rate of rho; null takes the adapter's.
    """

    init: float = 0.2
    cap: float = 3.0
    relative: bool = False
    lr: float | None = 5.0e-5

    def __post_init__(self) -> None:
        _within("latent_conf.scale.cap", self.cap, 0, math.inf, above=True)
        _within("latent_conf.scale.init", self.init, 0, self.cap, above=True)


@dataclass(frozen=True)
class NoiseConfig:
    """Gaussian noise on the initial anchor state h_0. ``relative``: in units of the state's RMS."""

    std: float = 0.5
    relative: bool = True


@dataclass(frozen=True)
class LatentConfig:
    """The latent loop (Eqs. 1-3).

    ``input``: what delta is computed from; ``constant`` learns one vector per step (a control).
    ``depth``: latent steps of a training utterance: all N, K uniform over 1..N, or ``every`` depth
    1..N at once (one loop, N transcript passes).
    """

    loop: Literal["paper", "released", "one_shot"] = "paper"
    steps: int = 4
    input: Literal["state", "constant"] = "state"
    positions: Literal["advance", "hold"] = "advance"
    anchor_token: str | int = "unused"
    delta: Literal["bounded", "free"] = "bounded"
    delta_init: Literal["default", "zero"] = "default"
    gate: Literal["sigmoid", "open"] = "sigmoid"
    anchor: Literal["embedding", "none"] = "embedding"
    normalize: Literal["initial", "all"] = "initial"
    depth: Literal["full", "sampled", "every"] = "full"
    drop: float = 0.15
    scale: ScaleConfig = field(default_factory=ScaleConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)

    def __post_init__(self) -> None:
        _within("latent_conf.steps", self.steps, 1, 1024)
        _within("latent_conf.drop", self.drop, 0, 1)
        if self.delta == "bounded" and self.delta_init == "zero":
            raise ConfigError(
                "latent_conf.delta: bounded contradicts latent_conf.delta_init: zero (u / |u| has no "
                "direction at zero, and its gradient there is 10^5 times too large); use delta: free"
            )
        if self.loop == "released" and self.input == "constant":
            raise ConfigError(
                "latent_conf.loop: released contradicts latent_conf.input: constant (its loop is "
                "made of states); use loop: paper"
            )
        if self.loop == "released" and self.normalize == "all":
            raise ConfigError(
                "latent_conf.loop: released contradicts latent_conf.normalize: all (that loop feeds "
                "raw states back through a layer norm); use normalize: initial"
            )


@dataclass(frozen=True)
class FlipConfig:
    """Forced-negative value targets y <- -|y| with probability ``prob`` per ``unit``."""

    prob: float = 0.3
    unit: Literal["minibatch", "utterance"] = "minibatch"

    def __post_init__(self) -> None:
        _within("value_conf.flip.prob", self.prob, 0, 1)


@dataclass(frozen=True)
class ValueConfig:
    """The value head's target (Eq. 4) and which states it is trained on.

    ``holdout``: share of the utterances (by a hash of their ids) that train the value head only: the
    gain on utterances the adapter is trained on is no estimate of the gain on new ones.
    """

    target: Literal["accuracy_gain", "utility"] = "accuracy_gain"
    states: Literal["all", "last"] = "all"
    detach: bool = False
    holdout: float = 0.0
    alpha: float = 0.9
    gain: float = 3.0
    fallback_gain: float = 0.5
    fallback_clip: float = 2.0
    flip: FlipConfig = field(default_factory=FlipConfig)

    def __post_init__(self) -> None:
        _within("value_conf.holdout", self.holdout, 0, 0.9)


# Metadata of a field that came later: at its default it is no part of `config_hash`, so that what was
# trained and decoded before keeps its identity.
_LATER = {"hashed": "if set"}


@dataclass(frozen=True)
class MwerConfig:
    """Minimum word error rate training on candidate lists of the adapter itself; ``none``: off.

    With ``nbest`` the loss is ce L_CE + weight L_MWER + the terms of cycle and value.  L_MWER is the
    expected number of errors under the list-normalised probabilities, softmax(log P / temperature), of
    the utterances' lists over their reference length (``sequence.expected_errors``).

    A list has ``samples`` draws (at ``sampling_temperature``) from the depth that the utterance is
    trained at, and with ``depths`` the greedy text of every depth up to it.  ``refresh``: what draws
    them is the adapter as it is at every ``batch``, or as it was when the ``epoch`` began.
    ``unit`` and ``normalizer`` say what an error is, as in scoring.
    """

    kind: Literal["none", "nbest"] = "none"
    weight: float = 1.0
    ce: float = 0.1
    samples: int = 4
    depths: bool = True
    temperature: float = 1.0
    sampling_temperature: float = 1.0
    refresh: Literal["batch", "epoch"] = "batch"
    unit: Literal["wer", "cer", "cer_nospace", "mer"] = "wer"
    normalizer: str = "none"

    def __post_init__(self) -> None:
        _within("loss_conf.mwer.weight", self.weight, 0, math.inf, above=True)
        _within("loss_conf.mwer.ce", self.ce, 0, math.inf)
        _within("loss_conf.mwer.samples", self.samples, 0, 1024)
        _within("loss_conf.mwer.temperature", self.temperature, 0, math.inf, above=True)
        _within("loss_conf.mwer.sampling_temperature", self.sampling_temperature, 0, 100, above=True)
        if not self.depths and self.samples < 2:
            raise ConfigError(
                f"loss_conf.mwer.samples: {self.samples} with depths: false: lists of one candidate "
                "teach nothing; give at least 2 samples, or depths: true"
            )
        set_keys = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        if self.kind == "none" and set_keys:
            raise ConfigError(
                f"loss_conf.mwer.{set_keys[0]}: without effect under kind: none; set kind: nbest, or "
                "leave it out"
            )


@dataclass(frozen=True)
class LossConfig:
    """Weights of L = L_CE + w_cyc(t) L_cyc + w_val L_val (Eqs. 5, 6); ``mwer``: sequence training."""

    cycle: float = 0.1
    cycle_beta: float = 0.3
    cycle_decay: Literal["linear", "constant"] = "linear"
    value: float = 3.0
    mwer: MwerConfig = field(default_factory=MwerConfig, metadata=_LATER)

    def __post_init__(self) -> None:
        _within("loss_conf.cycle", self.cycle, 0, math.inf)
        _within("loss_conf.cycle_beta", self.cycle_beta, 0, 1)
        _within("loss_conf.value", self.value, 0, math.inf)


@dataclass(frozen=True)
class FullConfig:
    """Full fine-tuning of the text decoder with its tied embeddings; the audio tower stays frozen."""


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adaptation of linear maps of the text decoder.

    ``modules``: names of the maps' modules, or ``all`` of the decoder's linear maps.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.05
    modules: str = "all"

    def __post_init__(self) -> None:
        _within("lora_conf.rank", self.rank, 1, 1 << 16)
        _within("lora_conf.alpha", self.alpha, 0, math.inf, above=True)
        _within("lora_conf.dropout", self.dropout, 0, 0.99)
        if not self.modules.split():
            raise ConfigError("lora_conf.modules: empty; names of linear maps expected")


@dataclass(frozen=True)
class PromptTuningConfig:
    """Trained vectors between prompt and transcript, started at the embeddings of ``text``."""

    vectors: int = 4
    text: str = "Transcribe the audio into text."
    positions: Literal["advance", "hold"] = "advance"

    def __post_init__(self) -> None:
        _within("prompt_tuning_conf.vectors", self.vectors, 1, 1024)


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning rate over training: a factor of each group's rate; ``warmup`` is a share of all steps."""

    kind: Literal["constant", "cosine"] = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        _within("schedule_conf.warmup", self.warmup, 0, 1)


ADAPTATIONS = {
    "latent": ("latent", "value", "loss"),
    "full": ("full",),
    "lora": ("lora",),
    "prompt": ("prompt_tuning",),
    "none": (),
}


@dataclass(frozen=True)
class ModelConfig:
    """Everything that decides which model is trained.

    ``adaptation``: what is trained; the sections of the other kinds keep their defaults and mean
    nothing (``model_config`` refuses YAMLs that set them).
    """

    adaptation: Literal["latent", "full", "lora", "prompt", "none"] = "latent"
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    latent: LatentConfig = field(default_factory=LatentConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    full: FullConfig = field(default_factory=FullConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    prompt_tuning: PromptTuningConfig = field(default_factory=PromptTuningConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)


@dataclass(frozen=True)
class HaltingConfig:
    """When to stop thinking.

    ``never``: the frozen recogniser.  ``fixed``: ``steps`` for everyone.  ``threshold``: the value head.
    ``surest``: every depth is decoded and the text with the highest mean log-probability is taken; it
    needs no value head and no threshold, and costs the decoding of N + 1 texts.
    """

    kind: Literal["never", "always", "fixed", "threshold", "surest"] = "threshold"
    theta: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        _within("halting.theta", self.theta, -math.inf, math.inf)
        _within("halting.steps", self.steps, 1 if self.kind == "fixed" else 0, 1024)


@dataclass(frozen=True)
class DecodeConfig:
    """Decoding; decides nothing about the model. New tokens are capped by audio length.

    ``on_halt``: a row that the threshold stops after step k keeps x_k (paper) or discards it.
    ``depths``: ``all`` also decodes every depth k = 0..N from the same prefill and records v_0..v_N,
    so that any other halting rule can be read off without decoding again.
    ``latents``: what is injected; all but ``own`` are controls: ``pause`` (delta = 0), ``mean`` (the
    training set's mean), ``swapped`` (those of the set's next utterance), ``random`` (a random
    direction of the own length).  How many are injected is always decided by the own values.
    ``prompt``: a whole other prompt than the one of training (null), for the prompt check.
    """

    halting: HaltingConfig = field(default_factory=HaltingConfig)
    on_halt: Literal["keep", "discard"] = "keep"
    depths: Literal["policy", "all"] = "policy"
    latents: Literal["own", "pause", "mean", "swapped", "random"] = "own"
    batch_size: int = 16
    tokens_per_second: float = 8.0
    tokens_extra: int = 16
    prompt: PromptConfig | None = None

    def __post_init__(self) -> None:
        if self.halting.kind == "surest" and self.depths != "all":
            raise ConfigError(
                "halting.kind: surest contradicts depths: policy (it compares the texts of all depths); "
                "use depths: all"
            )
        _within("batch_size", self.batch_size, 1, 1 << 20)
        _within("tokens_per_second", self.tokens_per_second, 0, math.inf)
        _within("tokens_extra", self.tokens_extra, 0, 1 << 20)


def _mismatch(where: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"{where}: expected {expected}, got {value!r} ({type(value).__name__})")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Coerce one value to its declared type, or raise naming the key."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise _mismatch(where, value, "a mapping of keys")
        return build(hint, value, where)
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if isinstance(value, bool) or value not in choices:
            raise _mismatch(where, value, " or ".join(map(repr, choices)))
        return value
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        errors = []
        for option in (o for o in options if o is not type(None)):
            try:
                return _convert(value, option, where)
            except ConfigError as error:
                errors.append(error)
        raise errors[0]
    if hint is bool:
        if not isinstance(value, bool):
            raise _mismatch(where, value, "true or false")
        return value
    if hint is float:
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise _mismatch(where, value, "a number") from None
        if math.isnan(number):
            raise ConfigError(f"{where}: nan is outside of every range; expected a number")
        return number
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(where, value, "a whole number")
        return value
    if not isinstance(value, str):
        raise _mismatch(where, value, "text (quote it)")
    return value


def build(cls: type[T], mapping: dict[str, Any], where: str = "config") -> T:
    """Make dataclass ``cls`` from a mapping; missing keys take their declared defaults."""
    hints = typing.get_type_hints(cls)
    for key in mapping:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, 1)
            hint = f"; did you mean '{where}.{near[0]}'?" if near else ""
            raise ConfigError(
                f"unknown key '{where}.{key}'; known keys: {', '.join(sorted(hints))}{hint}"
            )
    fields = {k: _convert(v, hints[k], f"{where}.{k}") for k, v in mapping.items()}
    try:
        return cls(**fields)
    except ConfigError as error:  # what a section says of itself names no file
        raise ConfigError(f"{where}: {error}") from None
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def model_config(adaptation: Any, sections: dict[str, dict[str, Any] | None]) -> ModelConfig:
    """Build a model's configuration from ``adaptation`` and its sections (``latent_conf`` as ``latent``).

    Raises:
        ConfigError: also a section with keys that the adaptation has no use for.
    """
    given = {name: section for name, section in sections.items() if section}
    if adaptation in ADAPTATIONS:
        for kind, names in ADAPTATIONS.items():
            for name in names:
                if name in given and name not in ADAPTATIONS[adaptation]:
                    key = f"{name}_conf.{next(iter(given[name]))}"
                    raise ConfigError(
                        f"adaptation: {adaptation} contradicts {key} (a key of adaptation: {kind}); "
                        f"remove one of the two"
                    )
    return build(ModelConfig, {"adaptation": adaptation, **given}, "model")


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` on top, mapping by mapping."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


# Values that aliases may add to those that are written out: a few lines can stand for billions.
MAX_REPEATED = 100_000
MAX_NESTED = 100  # brackets; the library's time grows with the square of them


class _UniqueKeys(yaml.SafeLoader):
    """YAML without the rule that the last of two equal keys wins in silence.

    What its values do not allow is an error with their line, and aliases have a limit.
    """

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _check_aliases(node)
        return node

    def fetch_flow_collection_start(self, TokenClass: type) -> None:
        if self.flow_level >= MAX_NESTED:
            raise yaml.YAMLError(f"line {self.line + 1}: nested too deeply")
        super().fetch_flow_collection_start(TokenClass)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        line, seen = node.start_mark.line + 1, set()
        for key, _ in node.value:
            key = self.construct_object(key, deep=True)
            if not isinstance(key, str | int | float | bool | None):
                raise yaml.YAMLError(f"key {key!r:.200} in the mapping from line {line} is no word")
            if key in seen:
                raise yaml.YAMLError(f"key '{key}' occurs twice in the mapping from line {line}")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # a date that is none, digits without end: the library checks nothing
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {error}") from None


def _check_aliases(root: yaml.Node) -> None:
    """Refuse aliases within what they stand for, and those that stand for too much together."""
    sizes: dict[int, int | None] = {}  # None: begun, not finished
    todo = [(root, False)]
    while todo:
        node, finished = todo.pop()
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        if finished:
            if None in (inside := [sizes[id(part)] for part in parts]):
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: an alias within its own anchor")
            sizes[id(node)] = 1 + sum(inside)
        elif id(node) not in sizes:
            sizes[id(node)] = None
            todo += [(node, True), *((part, False) for part in parts if id(part) not in sizes)]
    if sizes[id(root)] > len(sizes) + MAX_REPEATED:
        raise yaml.YAMLError(f"its aliases stand for {sizes[id(root)]} values; write out what is meant")


def read_yaml(path: str | Path) -> Any:
    """Read one YAML file as it is, whatever it holds.

    Raises:
        ConfigError: no such file, or broken YAML; names file and line.
    """
    text = read_text(path, "a YAML file", ConfigError)
    try:
        return yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid YAML: nested too deeply") from None


def load_yaml(path: str | Path, _chain: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read one YAML and its ``base:`` (a path relative to the file; at most one per file).

    Raises:
        ConfigError: no such file, not a mapping, broken YAML, or a circle of bases.
    """
    path = Path(path)
    if path.resolve() in _chain:
        raise ConfigError(f"{path}: 'base:' leads back to itself")
    loaded = read_yaml(path)
    loaded = {} if loaded is None else loaded
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected 'key: value' lines, got {type(loaded).__name__}")
    base = loaded.pop("base", None)
    if base is None:
        return loaded
    if not isinstance(base, str) or "\0" in base:
        raise ConfigError(f"{path}: base: expected one file name, got {base!r}")
    return merge(load_yaml(path.parent / base, (*_chain, path.resolve())), loaded)


def decode_hash(config: DecodeConfig) -> str:
    """Identity of a decoding rule apart from its prompt, which is told apart beside it."""
    plain = dataclasses.asdict(config)
    del plain["prompt"]
    return config_hash(plain)


def _identity(config: Any) -> Any:
    """``dataclasses.asdict`` without fields that came later and have their defaults."""
    if not dataclasses.is_dataclass(config):
        return config
    return {
        f.name: _identity(getattr(config, f.name))
        for f in dataclasses.fields(config)
        if f.metadata != _LATER or getattr(config, f.name) != f.default_factory()
    }


def config_hash(config: Any) -> str:
    """Twelve hex digits that identify a dataclass or a mapping, independent of key order."""
    plain = _identity(config)
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
