"""The prompt check in a report: rows, differences, and that prompts stay out of the other tables."""

import json
import shutil

import pytest

from espnet_latentasr.report.build import all_sections
from espnet_latentasr.report.experiment import Options, load_experiment
from espnet_latentasr.report.prompt_section import TITLE, prompt_section
from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.multiplicity import holm


@pytest.fixture(scope="module")
def exp(make_experiment, tmp_path_factory):
    """An experiment whose ``auto`` decodings are those of another draw."""
    root, other = tmp_path_factory.mktemp("prompts"), tmp_path_factory.mktemp("other")
    path = make_experiment(root, {"test_a": 30}, all_depths=False)
    shutil.copytree(root / "dump", other / "dump")
    drawn = make_experiment(other, {"test_a": 30}, seed=5, all_depths=False)
    for tag in ("decode_frozen", "decode_latent"):
        identity = {"backbone": "b", "model": "m", "decode": tag}
        (path / tag / "test_a" / "identity.json").write_text(json.dumps(identity))
        auto = shutil.copytree(drawn / tag, path / f"{tag}_prompt_auto") / "test_a"
        (auto / "identity.json").write_text(json.dumps(identity | {"prompt": {"language": "auto"}}))
        rows = [json.loads(line) for line in (auto / "latent.jsonl").read_text("utf-8").splitlines()]
        for number, row in enumerate(rows):
            row["language"] = "language English" if number else "language German"
        (auto / "latent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return load_experiment(path, Options(data_root=root / "dump" / "raw"))


def rows_of(table):
    return {row[0]: dict(zip((c.header for c in table.columns), row)) for row in table.rows}


def test_tables(exp):
    first, second = prompt_section(exp).tables
    rows = rows_of(first)
    tags = ["decode_frozen", "decode_frozen_prompt_auto", "decode_latent", "decode_latent_prompt_auto"]
    assert list(rows) == [f"{tag}/test_a" for tag in tags]
    assert [row["prompt"] for row in rows.values()] == ["official", "language auto"] * 2
    p = []
    for base, tag in (tags[:2], tags[2:]):
        one, other = exp.decoded[base, "test_a"], exp.decoded[tag, "test_a"]
        found = paired_bootstrap(one.errors, other.errors, one.lengths)
        row = rows[f"{tag}/test_a"]
        assert (row["Δ"], row["p"]) == (100 * found.delta, found.p)
        assert row["text changes %"] > 50
        assert (row["language written"], row["right %"]) == ("en 30, de 1", pytest.approx(100 * 30 / 31))
        assert rows[f"{base}/test_a"]["Δ"] is rows[f"{base}/test_a"]["language written"] is None
        p.append(found.p)
    assert [rows[f"{tag}/test_a"]["p Holm"] for tag in tags[1::2]] == holm(p).tolist()
    assert "exactly the 2 tests of this table" in first.note
    beside = rows_of(second)
    assert list(beside) == [f"{tag}/test_a" for tag in tags[2:]]
    # Both sides of a row read the same prompt.
    for prompt in ("", "_prompt_auto"):
        frozen = rows[f"decode_frozen{prompt}/test_a"]["WER"]
        assert beside[f"decode_latent{prompt}/test_a"]["frozen"] == frozen


def test_prompts_stay_out_of_the_main_table(exp):
    sections = {section.title: section for section in all_sections([exp, exp])}
    assert TITLE in sections
    main = sections["Latent against frozen"]
    assert [row[0] for row in main.tables[0].rows] == ["decode_latent/test_a"]
    assert "another prompt than decode_frozen's" in main.text
    assert [row[0] for row in sections["Over seeds"].tables[0].rows] == ["decode_latent/test_a"]
    assert exp.shown_tag() == "decode_latent"


def test_one_prompt_is_no_section(experiment):
    options = Options(data_root=experiment / "dump" / "raw", dev="valid")
    assert prompt_section(load_experiment(experiment / "exp" / "asr_test", options)) is None
