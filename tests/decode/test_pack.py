"""Packs: the trained tensors and nothing else, the same bytes every time, and ESPnet reads the zip."""

import json
import zipfile

import pytest
import safetensors.torch
import torch
import yaml
from small_experiment import write_experiment

from espnet_latentasr.backbone.frozen import RECORD
from espnet_latentasr.bin import pack as command
from espnet_latentasr.config import DecodeConfig, build
from espnet_latentasr.decode.pack import model_identity, pack_files, read_experiment
from espnet_latentasr.decode.pack_card import Facts, card_text, rule_in_words
from espnet_latentasr.decode.pack_format import (
    ADAPTER,
    CARD,
    CONFIG,
    META,
    parse_config,
    read_folder,
    read_zip,
    zip_bytes,
)
from espnet_latentasr.errors import ConfigError, DataError


def options(experiment, out, *more):
    return [
        *("--backbone_dir", str(experiment.backbone_dir), "--asr_train_config", str(experiment.config)),
        *("--asr_model_file", str(experiment.model), "--out", str(out), *map(str, more)),
    ]


def test_a_pack_holds_what_was_trained_and_nothing_else(packed, experiment, tiny_backbone_dir):
    packed_tensors = safetensors.torch.load_file(packed / ADAPTER)
    trained = torch.load(experiment.model, weights_only=True)
    named = {key.removeprefix("method."): value for key, value in trained.items()}
    assert named.keys() - packed_tensors.keys() == {"adapter.anchor"}
    assert all(torch.equal(value, named[key]) for key, value in packed_tensors.items())
    # No row of any of the recogniser's matrices is among the packed rows.
    base = safetensors.torch.load_file(tiny_backbone_dir / "model.safetensors")
    rows = {tuple(row.tolist()) for m in base.values() if m.dim() == 2 for row in m}
    inside = {tuple(row.tolist()) for m in packed_tensors.values() if m.dim() == 2 for row in m}
    assert len(inside) > 100 and not inside & rows
    config = json.loads((packed / CONFIG).read_text())
    assert config["adapter"]["parameters"] == sum(
        v.numel() for k, v in packed_tensors.items() if k != "adapter.mean_update"
    )


def test_files_name_no_place_of_this_machine(packed, experiment, tiny_backbone_dir):
    config = json.loads((packed / CONFIG).read_text())
    assert config["backbone"]["name"] == tiny_backbone_dir.name and config["backbone"]["local"] is True
    for path in packed.iterdir():
        text = path.read_bytes()
        for place in (tiny_backbone_dir, experiment.model, packed):
            assert str(place.parent).encode() not in text
    assert sorted(path.name for path in packed.iterdir()) == sorted([ADAPTER, CARD, CONFIG, META])


def test_a_token_in_the_environment_stays_there(experiment, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    with caplog.at_level("DEBUG"):
        command.main(options(experiment, tmp_path / "adapter"))
    for path in tmp_path.rglob("*.*"):
        assert path.is_dir() or b"hf_secretsecret" not in path.read_bytes()
    assert "hf_secretsecret" not in caplog.text


def test_the_same_experiment_gives_the_same_bytes(packed, experiment, tmp_path):
    more = ("--inference_config", experiment.decode, "--lang", "English")
    command.main(options(experiment, tmp_path / "again", *more))
    for path in packed.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    first = packed.with_name("adapter.zip").read_bytes()
    assert first == (tmp_path / "again.zip").read_bytes()


def test_folder_and_zip_hold_the_same_bytes_and_no_pickle(packed):
    with zipfile.ZipFile(packed.with_name("adapter.zip")) as archive:
        assert archive.namelist()[0] == META
        for member in archive.infolist():
            assert archive.read(member) == (packed / member.filename).read_bytes()
            assert not member.filename.endswith((".pth", ".pt", ".bin", ".pkl"))
        assert len(archive.namelist()) == len(list(packed.iterdir()))


def test_what_is_packed_is_what_is_read(packed, experiment):
    pack = read_folder(packed)
    assert pack == read_zip(packed.with_name("adapter.zip"))
    assert pack == read_experiment(
        experiment.backbone_dir, experiment.config, experiment.model, experiment.decode, "en"
    )
    assert pack.model == model_identity(experiment.config, experiment.model)
    assert (pack.decode_tag, pack.decode.batch_size, pack.versions["espnet"]) == ("decode_x", 4, "202511")


def test_an_infinite_threshold_survives_strict_json(experiment, tmp_path):
    (tmp_path / "inf.yaml").write_text("halting: {kind: threshold, theta: .inf}\n")
    files = (experiment.backbone_dir, experiment.config, experiment.model, tmp_path / "inf.yaml")
    made = pack_files(read_experiment(*files), Facts())
    json.loads(made[CONFIG], parse_constant=pytest.fail)
    read = parse_config(made[CONFIG].decode(), made[ADAPTER], "x")
    assert read.decode.halting.theta == float("inf") and read.language is None


def test_espnets_own_unpacking_gives_files_that_load(packed, tmp_path, capsys):
    pack_funcs = pytest.importorskip("espnet2.main_funcs.pack_funcs")
    found = pack_funcs.unpack(packed.with_name("adapter.zip"), tmp_path / "unpacked")
    assert found.keys() == {"asr_train_config", "asr_model_file"}
    assert read_folder(tmp_path / "unpacked") == read_folder(packed)
    assert pack_funcs.get_dict_from_cache(tmp_path / "x" / META) is None
    meta = yaml.safe_load((packed / META).read_text())
    pack_funcs.pack({"a": packed / CONFIG}, {}, tmp_path / "theirs.zip")
    with zipfile.ZipFile(tmp_path / "theirs.zip") as archive:
        assert yaml.safe_load(archive.read(META)).keys() - {"espnet"} <= meta.keys()


@pytest.mark.parametrize("kind", ["lora", "prompt", "full"])
def test_other_adaptations_are_packed_alike(kind, tmp_path, tiny_backbone_dir, clips):
    sections = {"prompt": {"prompt_tuning": {"text": "turn on the light"}}, "lora": {"lora": {"rank": 2}}}
    made = write_experiment(tmp_path, tiny_backbone_dir, clips, kind, **sections.get(kind, {}))
    pack = read_experiment(made.backbone_dir, made.config, made.model)
    trained = torch.load(made.model, weights_only=True)
    assert pack.method.adaptation == kind
    assert len(safetensors.torch.load(pack.adapter)) == len(trained)
    assert ("its licence applies to them too" in card_text(pack, Facts())) == (kind == "full")


# ---- what is refused ---------------------------------------------------------------------------


def changed(packed, tmp_path, change, adapter=None):
    config = json.loads((packed / CONFIG).read_text())
    change(config)
    (tmp_path / CONFIG).write_text(json.dumps(config))
    (tmp_path / ADAPTER).write_bytes((packed / ADAPTER).read_bytes() if adapter is None else adapter)
    return tmp_path


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c["method"]["latent_conf"].update(steps=3), "edited after packing"),
        (lambda c: c.update(format="x"), "not the config.json of"),
        (lambda c: c.update(format_version=2), "format_version 2, this installation reads 1"),
        (lambda c: c.pop("decode"), "not the config.json of.*decode"),
        (lambda c: c["decode"].update(thetta=1), "unknown key"),
        (lambda c: c["backbone"].pop("fingerprint"), "fingerprint"),
        (lambda c: c["adapter"].update(sha256="0" * 64), "damaged or exchanged"),
    ],
)
def test_a_changed_config_is_refused(packed, tmp_path, change, message):
    with pytest.raises((ConfigError, DataError), match=message):
        read_folder(changed(packed, tmp_path, change))


def test_exchanged_or_missing_tensors_are_refused(packed, tmp_path):
    data = bytearray((packed / ADAPTER).read_bytes())
    data[-1] ^= 1
    with pytest.raises(DataError, match="damaged or exchanged"):
        read_folder(changed(packed, tmp_path, lambda c: None, bytes(data)))
    (tmp_path / ADAPTER).unlink()
    with pytest.raises(DataError, match=f"no {ADAPTER}"):
        read_folder(tmp_path)


def test_zips_that_are_none_of_ours_are_refused(packed, tmp_path):
    place = tmp_path / "x.zip"
    place.write_bytes(b"no zip")
    with pytest.raises(DataError, match="not a readable zip"):
        read_zip(place)
    place.write_bytes(zip_bytes({META: b"files: {}"}))
    with pytest.raises(DataError, match="no item named 'config.json'"):
        read_zip(place)
    whole = zip_bytes({path.name: path.read_bytes() for path in packed.iterdir()})
    place.write_bytes(whole[:-30])
    with pytest.raises(DataError, match="not a readable zip"):
        read_zip(place)


def test_a_zip_bomb_is_not_inflated(packed, tmp_path, monkeypatch):
    bomb, read = tmp_path / "bomb.zip", []
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CONFIG, (packed / CONFIG).read_text())
        archive.writestr(ADAPTER, bytes(20_000_000))
    original = zipfile.ZipFile.read
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda s, n: read.append(n) or original(s, n))
    with pytest.raises(DataError, match="0 bytes"):
        read_zip(bomb)
    assert read == [CONFIG]
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CONFIG, bytes(2_000_000))
    with pytest.raises(DataError, match="no pack of ours"):
        read_zip(bomb)


def test_hostile_members_are_never_written(packed, tmp_path, monkeypatch):
    """Reading unpacks nothing, whatever a zip's members are called."""
    evil = tmp_path / "evil.zip"
    files = {path.name: path.read_bytes() for path in packed.iterdir()}
    evil.write_bytes(zip_bytes(files | {"../../evil.txt": b"x", "/tmp/evil_share.txt": b"x"}))
    monkeypatch.chdir(tmp_path)
    assert read_zip(evil) == read_folder(packed)
    assert [path.name for path in tmp_path.iterdir()] == ["evil.zip"]


class Code:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code ran')",))


def test_code_in_a_checkpoint_is_not_run(experiment, tmp_path):
    torch.save({"method.x": Code()}, tmp_path / "evil.pth")
    words = options(experiment, tmp_path / "out")
    words[words.index("--asr_model_file") + 1] = str(tmp_path / "evil.pth")
    with pytest.raises(ConfigError, match="not a checkpoint of tensors"):
        command.main(words)
    torch.save({"epoch": 3, "model": {}}, tmp_path / "evil.pth")
    with pytest.raises(ConfigError, match="take valid.ce.best.pth"):
        command.main(words)
    assert not (tmp_path / "out").exists()


def test_an_experiment_on_another_recogniser_is_refused(experiment, tmp_path):
    record = json.loads((experiment.backbone_dir / RECORD).read_text()) | {"fingerprint": "sha256:other"}
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="trained on recogniser sha256:.*sha256:other"):
        read_experiment(tmp_path, experiment.config, experiment.model)


def test_a_hub_recogniser_is_named_with_its_commit(experiment, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    record = json.loads((experiment.backbone_dir / RECORD).read_text())
    record["config"] |= {"name": "owner/model", "revision": commit}
    record["fingerprint"] = f"owner/model@{commit}"
    (tmp_path / RECORD).write_text(json.dumps(record))
    saved = yaml.safe_load(experiment.config.read_text())
    saved["backbone_fingerprint"] = record["fingerprint"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    pack = read_experiment(tmp_path, tmp_path / "config.yaml", experiment.model)
    assert (pack.recogniser.name, pack.recogniser.revision) == ("owner/model", commit)
    card = card_text(pack, Facts(license="mit", datasets=("tones",)))
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["base_model"] == "owner/model" and head["base_model_relation"] == "adapter"
    assert (head["license"], head["datasets"]) == ("mit", ["tones"]) and "metrics" not in head


# ---- the card ----------------------------------------------------------------------------------


def test_the_card_says_what_is_not_known(packed):
    card = (packed / CARD).read_text()
    assert "Not measured" in card and card.count("Not named by whoever packed this") == 2
    assert 'from_pretrained("THIS_FOLDER_OR_ZIP", backbone="FOLDER")' in card
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["library_name"] == "espnet" and "base_model" not in head and head["language"] == "en"


@pytest.mark.parametrize("kind", ["never", "always", "fixed", "threshold", "surest"])
def test_every_rule_has_words(kind):
    steps = {"steps": 2} if kind == "fixed" else {}
    depths = {"depths": "all"} if kind == "surest" else {}
    words = rule_in_words(build(DecodeConfig, {"halting": {"kind": kind} | steps, **depths}))
    assert len(words) > 20 and ("2" in words) == (kind == "fixed")


def scored(exp, tag, test_set, model, texts):
    from espnet_latentasr.text.error_rate import score
    from espnet_latentasr.text.normalize import get_normalizer
    from espnet_latentasr.text.score_dir import write_score_dir

    references = {"u1": "a b", "u2": "c d"}
    result = score(references, dict(zip(references, texts)), "wer", get_normalizer("none"))
    folder = exp / tag / test_set
    write_score_dir(folder / "score_wer", result, {"u1": "u1", "u2": "u2"}, language="en")
    seconds = dict.fromkeys(("encode", "prefill", "loop", "decode"), 0.1)
    row = {"steps": 1, "stopped": "budget", "capped": False, "audio_seconds": 1.0, "seconds": seconds}
    row |= {"values": [0.1], "update_norms": [], "update_cosines": [], "update_jumps": []}
    lines = (json.dumps({"utt_id": utt_id} | row) + "\n" for utt_id in references)
    (folder / "latent.jsonl").write_text("".join(lines))
    (folder / "identity.json").write_text(json.dumps({"backbone": "b", "model": model, "decode": "d"}))


def test_the_cards_numbers_are_those_of_the_scored_decodings(experiment, tmp_path):
    model = model_identity(experiment.config, experiment.model)
    exp = tmp_path / "exp"
    for test_set in ("test_a", "valid_noisy"):
        scored(exp, "decode_frozen", test_set, "none", ("a x", "c d"))
        # Of an earlier version of the package: other keys in the configuration's hash, the same weights.
        scored(exp, "decode_x", test_set, f"old{model[3:]}", ("a b", "c d"))
        scored(exp, "decode_other", test_set, "other", ("a b", "c d"))
    more = ("--inference_config", experiment.decode, "--results", exp)
    command.main(options(experiment, tmp_path / "out", *more))
    card = (tmp_path / "out" / CARD).read_text()
    (row,) = [line for line in card.split("\n") if line.startswith("|decode")]
    assert row.split("|")[1:5] == ["decode_x/test_a", "25.00", "0.00", "-25.00"]
    assert "bootstrap" in card and yaml.safe_load(card.split("---\n")[1])["metrics"] == ["wer"]
    other = f"{model.partition('-')[0]}-another"
    scored(exp, "decode_x", "test_b", other, ("a b", "c d"))
    scored(exp, "decode_frozen", "test_b", "none", ("a b", "c d"))
    with pytest.raises(DataError, match="decoded by model .*-another, but .* is packed"):
        command.main(options(experiment, tmp_path / "out2", *more))
    with pytest.raises(ConfigError, match="--results: needs --inference_config"):
        command.main(options(experiment, tmp_path / "out2", "--results", exp))
    assert not (tmp_path / "out2").exists()


def test_results_that_are_not_there_are_an_error(experiment, tmp_path):
    (tmp_path / "exp").mkdir()
    with pytest.raises(DataError, match="no test set scored under both decode_x and decode_frozen"):
        command.main(
            options(
                experiment, tmp_path / "out", "--inference_config", experiment.decode,
                "--results", tmp_path / "exp",
            )
        )  # fmt: skip
