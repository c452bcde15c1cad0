"""Families: which trainings they need, and tables over seeds read from decoded folders."""

import csv
import json

import numpy as np
import pytest

from espnet_latentasr.analysis.family import Place, pooled_difference, surest_depth, write_family
from espnet_latentasr.analysis.family_plan import plan, read_family
from espnet_latentasr.bin import family as command
from espnet_latentasr.errors import ConfigError, DataError

YAML = """
small:
  decode: conf/depths.yaml
  reference: loop
  systems:
    loop: {asr: conf/n4.yaml}
    pause: {asr: conf/n4.yaml, decode: conf/pause.yaml}
    LoRA: {asr: conf/lora.yaml, decode: conf/adapted.yaml, num_activation: 7}
"""
REFERENCE = {"u1": "a b c d", "u2": "e f", "u3": "g h i j"}


@pytest.fixture
def families(tmp_path):
    path = tmp_path / "families.yaml"
    path.write_text(YAML)
    return path


def test_equal_trainings_are_planned_once_and_seed_by_seed(families):
    family = read_family(families, "small", 5)
    assert plan([family, family], [1, 2], "--max_epoch 3") == [
        ("n4_act5_seed1_max_epoch_3", "conf/n4.yaml", "conf/depths.yaml conf/pause.yaml", "5", "1"),
        ("lora_act7_seed1_max_epoch_3", "conf/lora.yaml", "conf/adapted.yaml", "7", "1"),
        ("n4_act5_seed2_max_epoch_3", "conf/n4.yaml", "conf/depths.yaml conf/pause.yaml", "5", "2"),
        ("lora_act7_seed2_max_epoch_3", "conf/lora.yaml", "conf/adapted.yaml", "7", "2"),
    ]


@pytest.mark.parametrize(
    "text, said",
    [
        ("small: {systems: {a: {}}}", "system 'a' needs 'asr'"),
        ("small: {decode: d, systems: {a: {asr: x, seeds: 3}}}", "unknown key 'seeds'"),
        ("small: {systems: {a: {asr: x}}}", "system 'a' has no 'decode'"),
        ("small: {decode: d, reference: b, systems: {a: {asr: x}}}", "reference 'b' is none of"),
        ("small: {decode: d, systems: {a: {asr: x, num_activation: 0}}}", "num_activation 0"),
        ("other: {}", "no family 'small'; there are other"),
    ],
)
def test_a_wrong_file_is_refused_by_name(families, text, said):
    families.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_family(families, "small", 5)


def write_depths(folder, texts, values):
    """texts[utt]: one per depth."""
    folder.mkdir(parents=True)
    nbest, latent = [], []
    for utt, row in texts.items():
        hyps = []
        for k, text in enumerate(row):
            count = len(text.split())
            log_probability = -float(count + 1 + (k == 2))  # the last depth is the least sure
            hyps.append({"text": text, "depth": k, "am_logp": log_probability, "n_tok": count})
        nbest.append(json.dumps({"utt_id": utt, "hyps": hyps}))
        latent.append(json.dumps({"utt_id": utt, "values": values[utt]}))
    (folder / "nbest.jsonl").write_text("\n".join(nbest) + "\n")
    (folder / "latent.jsonl").write_text("\n".join(latent) + "\n")


@pytest.fixture
def place(tmp_path):
    """Two seeds; seed 1 of the loop errs less at depth 1, LoRA is perfect, pausing is wrong."""
    data, exp = tmp_path / "dump", tmp_path / "exp"
    for name in ("dev", "test"):
        (data / name).mkdir(parents=True)
        (data / name / "text").write_text("".join(f"{u} {t}\n" for u, t in REFERENCE.items()))
        for seed in (1, 2):
            good = {
                "u1": ["a b x d", "a b c d", "a b c d"],
                "u2": ["e f", "e x", "x x"],
                "u3": ["g h i j", "g h i j", "g h i" if seed == 1 else "g h i j"],
            }
            values = {"u1": [0.5, 0.5, 0.5], "u2": [-0.5, 0.1, 0.1], "u3": [0.2, -0.1, 0.1]}
            loop = exp / f"asr_n4_act5_seed{seed}"
            write_depths(loop / "depths" / name, good, values)
            pause = {u: [row[0], "x", "x"] for u, row in good.items()}
            write_depths(loop / "pause" / name, pause, values)
            lora = exp / f"asr_lora_act7_seed{seed}" / "adapted" / name
            lora.mkdir(parents=True)
            (lora / "text").write_text("".join(f"{u} {t}\n" for u, t in REFERENCE.items()))
    return Place(exp, data, "dev", ("test",))


def rows_of(text, header):
    """Cells of the table whose header starts with ``header``, keyed by what precedes."""
    lines = text[text.index(header) :].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append(line[1:-1].split("|"))
    return found


def test_tables_over_two_seeds(families, place):
    path = write_family(read_family(families, "small", 5), [1, 2], "", place, "none", "wer")
    text = path.read_text()
    systems = {row[0]: row for row in rows_of(text, "|system|WER %|Δ frozen")}
    # Frozen: one error of ten words.  Loop at N: seed 1 three errors, seed 2 two.
    assert systems["frozen"][1] == "10.00"
    assert systems["loop"][1] == "25.00 ± 7.07" and systems["loop"][2] == "+15.00"
    assert systems["LoRA"][1] == "0.00 ± 0.00" and systems["LoRA"][2] == "-10.00"
    assert systems["LoRA"][6] == "1/0/2"
    assert systems["LoRA"][7] == "-25.00" and systems["loop"][7] == ""
    rules = {(row[0], row[1]): row for row in rows_of(text, "|system|rule|")}
    assert rules["loop", "never"][2] == "10.00 ± 0.00"
    assert rules["loop", "always"][2] == "25.00 ± 7.07"
    # Of the thresholds without an error the one with fewest steps: only u1 thinks, twice.
    assert rules["loop", "theta, keep"][2] == "0.00 ± 0.00"
    assert rules["loop", "theta, keep"][3:5] == ["0.67", "66.7"]
    assert rules["loop", "oracle"][2] == "0.00 ± 0.00"
    assert ("LoRA", "never") not in rules
    with open(path.with_suffix(".csv")) as file:
        long = list(csv.DictReader(file))
    assert len(long) == 2 * (2 * 3 * 2 + 2)
    assert {"system": "LoRA", "seed": "1", "set": "test", "depth": "", "errors": "0"}.items() <= long[
        -2
    ].items()


def test_another_frozen_text_is_refused(families, place):
    folder = place.expdir / "asr_n4_act5_seed2/pause/test"
    rows = [json.loads(line) for line in (folder / "nbest.jsonl").open()]
    rows[0]["hyps"][0]["text"] = "a b c d"
    (folder / "nbest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="depth 0 is not the same text in all systems"):
        write_family(read_family(families, "small", 5), [1, 2], "", place, "none", "wer")


def test_a_missing_experiment_is_named(families, place):
    with pytest.raises(DataError, match="asr_n4_act5_seed3/depths/dev/text: not found"):
        write_family(read_family(families, "small", 5), [1, 3], "", place, "none", "wer")


def test_seeds_add_up_before_the_test():
    """Copies of a system as further seeds change neither the difference nor its interval."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 200)
    base = rng.integers(0, 3, 200)
    system = np.maximum(base - rng.integers(0, 2, 200), 0)
    one = pooled_difference([base], [system], lengths)
    three = pooled_difference([base], [system] * 3, lengths)
    assert (three.delta, three.low, three.high, three.p) == (one.delta, one.low, one.high, one.p)


def test_surest_depth_prefers_the_smaller_of_equals():
    assert surest_depth(np.array([[-0.5, -0.5, -0.6], [-0.9, -0.3, -0.2]])).tolist() == [0, 2]


def test_command_prints_the_plan(families, capsys):
    command.main(
        ["plan", "--families", str(families), "--family", "small", "--seeds", "1 2"]
        + ["--num_activation", "5"]
    )
    assert len(capsys.readouterr().out.splitlines()) == 4
