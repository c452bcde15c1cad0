"""Configuration: what is refused, how it is named, and what identifies a configuration."""

from __future__ import annotations

import dataclasses

import pytest

from espnet_latentasr.config import (
    DecodeConfig,
    LatentConfig,
    ModelConfig,
    ScaleConfig,
    build,
    config_hash,
    load_yaml,
    merge,
)
from espnet_latentasr.errors import ConfigError


def refused(cls, mapping: dict) -> str:
    with pytest.raises(ConfigError) as error:
        build(cls, mapping)
    return str(error.value)


# Keys


def test_no_keys_give_the_declared_defaults():
    assert build(ModelConfig, {}) == ModelConfig()
    assert build(ModelConfig, {"latent": {"scale": {}}}) == ModelConfig()


def test_nested_keys():
    config = build(
        ModelConfig,
        {"latent": {"steps": 8, "scale": {"init": 1.5, "relative": True}}, "loss": {"value": 1}},
    )
    assert config.latent.steps == 8
    assert config.latent.scale == ScaleConfig(init=1.5, relative=True)
    assert config.latent.positions == LatentConfig().positions
    assert config.loss.value == 1.0 and isinstance(config.loss.value, float)


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        build(ModelConfig, {}).latent.steps = 3


def test_an_unknown_key_names_the_nearest_and_all_known():
    message = refused(ModelConfig, {"latnet": {}})
    assert "unknown key 'config.latnet'" in message
    assert "did you mean 'config.latent'?" in message
    known = "adaptation, backbone, full, latent, lora, loss, prompt, prompt_tuning, schedule, value"
    assert known in message


def test_an_unknown_nested_key_is_named_with_its_path():
    message = refused(ModelConfig, {"latent": {"scale": {"intit": 0.3}}})
    assert "'config.latent.scale.intit'" in message
    assert "did you mean 'config.latent.scale.init'?" in message


def test_an_unknown_key_that_resembles_nothing():
    message = refused(ModelConfig, {"zzzz": 1})
    assert "'config.zzzz'" in message and "did you mean" not in message
    assert "'config.1'" in refused(ModelConfig, {1: 2})


# Types


@pytest.mark.parametrize(
    "key, value, expected",
    [
        ("steps", True, "a whole number"),
        ("steps", "4", "a whole number"),
        ("steps", 4.0, "a whole number"),
        ("steps", None, "a whole number"),
        ("drop", "much", "a number"),
        ("drop", True, "a number"),
        ("drop", None, "a number"),
        ("drop", [0.1], "a number"),
        ("positions", False, "'advance' or 'hold'"),
        ("positions", "held", "'advance' or 'hold'"),
        ("positions", None, "'advance' or 'hold'"),
        ("anchor_token", False, "text"),
        ("anchor_token", 0.5, "text"),
        ("scale", 0.2, "a mapping"),
        ("scale", None, "a mapping"),
    ],
)
def test_wrong_types_name_key_value_and_expectation(key, value, expected):
    message = refused(LatentConfig, {key: value})
    assert message.startswith(f"config.{key}: expected {expected}")
    assert repr(value) in message and type(value).__name__ in message


@pytest.mark.parametrize("value", ["no", 0, 1, "true", None])
def test_a_switch_is_true_or_false(value):
    assert "expected true or false" in refused(ScaleConfig, {"relative": value})


def test_text_that_yaml_took_for_something_else(tmp_path):
    (tmp_path / "c.yaml").write_text("prompt:\n  context: no\n")
    message = refused(ModelConfig, load_yaml(tmp_path / "c.yaml"))
    assert "config.prompt.context: expected text (quote it), got False" in message
    (tmp_path / "c.yaml").write_text("prompt:\n  context: 'no'\n")
    assert build(ModelConfig, load_yaml(tmp_path / "c.yaml")).prompt.context == "no"


def test_a_number_that_yaml_took_for_text(tmp_path):
    (tmp_path / "c.yaml").write_text("latent:\n  scale:\n    lr: 1e-4\n    init: 2\n")
    loaded = load_yaml(tmp_path / "c.yaml")
    assert loaded["latent"]["scale"]["lr"] == "1e-4"
    scale = build(ModelConfig, loaded).latent.scale
    assert scale.lr == 1e-4 and scale.init == 2.0 and isinstance(scale.init, float)


def test_optional_values():
    assert build(ScaleConfig, {"lr": None}).lr is None
    assert "expected a number" in refused(ScaleConfig, {"lr": "fast"})
    assert build(LatentConfig, {"anchor_token": 7}).anchor_token == 7
    assert build(LatentConfig, {"anchor_token": "<asr_text>"}).anchor_token == "<asr_text>"


def test_a_threshold_may_be_infinite(tmp_path):
    (tmp_path / "c.yaml").write_text("halting: {kind: threshold, theta: .inf}\n")
    config = build(DecodeConfig, load_yaml(tmp_path / "c.yaml"))
    assert config.halting.theta == float("inf")


# Files


def write(folder, **files: str):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_merging_is_deep_and_changes_neither_side():
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": [1, 2], "f": {"g": 1}}
    over = {"a": {"c": {"d": 3, "x": 4}}, "e": [3], "f": 5}
    merged = merge(base, over)
    assert merged == {"a": {"b": 1, "c": {"d": 3, "x": 4}}, "e": [3], "f": 5}
    assert base == {"a": {"b": 1, "c": {"d": 2}}, "e": [1, 2], "f": {"g": 1}}
    assert over == {"a": {"c": {"d": 3, "x": 4}}, "e": [3], "f": 5}


def test_a_chain_of_bases(tmp_path):
    write(
        tmp_path,
        one="latent: {steps: 1, drop: 0.5}\nloss: {value: 2.0}\n",
        two="base: one.yaml\nlatent: {steps: 2}\n",
    )
    (tmp_path / "tuning").mkdir()
    write(tmp_path / "tuning", three="base: ../two.yaml\nlatent: {scale: {init: 1.0}}\n")
    loaded = load_yaml(tmp_path / "tuning" / "three.yaml")
    assert loaded == {
        "latent": {"steps": 2, "drop": 0.5, "scale": {"init": 1.0}},
        "loss": {"value": 2.0},
    }
    assert build(ModelConfig, loaded).latent.steps == 2


@pytest.mark.parametrize("start", ["a", "self"])
def test_a_circle_of_bases(tmp_path, start):
    write(tmp_path, a="base: b.yaml\n", b="base: a.yaml\n", self="base: ./self.yaml\n")
    with pytest.raises(ConfigError, match="leads back to itself"):
        load_yaml(tmp_path / f"{start}.yaml")


@pytest.mark.parametrize("base", ["3", "[one.yaml, two.yaml]", "true", "{a: b}", "''"])
def test_a_base_that_is_no_file_name(tmp_path, base):
    write(tmp_path, a=f"base: {base}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: base: expected one file name|cannot be read"):
        load_yaml(tmp_path / "a.yaml")


def test_a_missing_file_and_a_missing_base(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read \(No such file"):
        load_yaml(tmp_path / "nowhere.yaml")
    write(tmp_path, a="base: gone.yaml\n")
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read"):
        load_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ["a: [1, 2\n", "a: b: c\n", "\tx: 1\n", "a: *nothing\n"])
def test_broken_yaml_names_the_file(tmp_path, text):
    write(tmp_path, a=text)
    with pytest.raises(ConfigError, match=r"a\.yaml: not valid YAML"):
        load_yaml(tmp_path / "a.yaml")


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"a\.yaml"):
        load_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "just text\n", "7\n", "[]\n", "false\n"])
def test_a_file_without_keys(tmp_path, text):
    write(tmp_path, a=text)
    with pytest.raises(ConfigError, match="expected 'key: value' lines"):
        load_yaml(tmp_path / "a.yaml")


def test_an_empty_file_has_the_defaults(tmp_path):
    write(tmp_path, a="", b="# only a comment\n")
    assert load_yaml(tmp_path / "a.yaml") == load_yaml(tmp_path / "b.yaml") == {}


def test_no_code_runs_from_a_file(tmp_path):
    write(tmp_path, a="a: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_yaml(tmp_path / "a.yaml")


# Identity


def test_the_hash_does_not_depend_on_the_order_of_keys():
    one = {"latent": {"steps": 4, "drop": 0.1}, "loss": {"value": 2.0}}
    two = {"loss": {"value": 2.0}, "latent": {"drop": 0.1, "steps": 4}}
    assert config_hash(one) == config_hash(two)
    assert config_hash(build(ModelConfig, one)) == config_hash(build(ModelConfig, two))
    assert len(config_hash(one)) == 12 and set(config_hash(one)) <= set("0123456789abcdef")


def test_the_hash_depends_on_every_value():
    seen = {config_hash(ModelConfig())}
    for change in (
        {"latent": {"steps": 5}},
        {"latent": {"scale": {"lr": None}}},
        {"backbone": {"name": "x"}},
        {"prompt": {"context": "ü"}},
        {"value": {"flip": {"unit": "utterance"}}},
        {"loss": {"cycle_decay": "constant"}},
    ):
        seen.add(config_hash(build(ModelConfig, change)))
    assert len(seen) == 7


def test_a_value_written_out_has_the_hash_of_its_default():
    written = build(ModelConfig, {"latent": {"scale": {"lr": "5e-5"}, "steps": 4}})
    assert config_hash(written) == config_hash(ModelConfig())


def test_the_hash_is_the_same_in_every_process():
    assert config_hash({"a": 1, "b": [True, None, "ü"]}) == "afbe15f4cd77"


@pytest.mark.parametrize(
    ("section", "keys", "message"),
    [
        (LatentConfig, {"steps": 0}, r"latent_conf.steps: 0 is outside \[1"),
        (LatentConfig, {"drop": 1.5}, r"latent_conf.drop: 1.5 is outside \[0, 1\]"),
        (LatentConfig, {"scale": {"init": 0.0}}, r"scale.init: 0.0 is outside \(0, 3\]"),
        (LatentConfig, {"scale": {"init": 4.0}}, r"scale.init: 4.0 is outside \(0, 3\]"),
        (LatentConfig, {"delta_init": "zero"}, "bounded contradicts latent_conf.delta_init"),
        (DecodeConfig, {"halting": {"theta": float("nan")}}, "halting.theta: nan is outside"),
        (DecodeConfig, {"halting": {"kind": "fixed"}}, r"halting.steps: 0 is outside \[1"),
        (DecodeConfig, {"batch_size": 0}, "batch_size: 0 is outside"),
    ],
)
def test_values_out_of_range_or_contradicting(section, keys, message):
    with pytest.raises(ConfigError, match=message):
        build(section, keys)


def test_a_key_written_twice_is_an_error(tmp_path):
    (tmp_path / "x.yaml").write_text("a: 1\nlatent_conf:\n  steps: 4\n  steps: 8\n")
    with pytest.raises(ConfigError, match="'steps' occurs twice in the mapping from line 3"):
        load_yaml(tmp_path / "x.yaml")
