"""A loaded pack decodes what the recipe decodes, and another recogniser is not taken in silence."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from espnet_latentasr import Speech2Text
from espnet_latentasr.backbone.frozen import RECORD
from espnet_latentasr.backbone.hub import download
from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.merge import job_dir, merge_jobs
from espnet_latentasr.decode.pack_format import ADAPTER, CONFIG, read_folder
from espnet_latentasr.decode.pretrained import check_device, find_pack, recogniser_config
from espnet_latentasr.errors import ConfigError, DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def asr(packed, tiny_backbone_dir):
    return Speech2Text.from_pretrained(packed, backbone=tiny_backbone_dir)


def test_a_pack_decodes_what_the_recipe_decodes(asr, experiment, tones, tmp_path):
    """Stage 12 on the experiment, and one call of the shared adapter: every recorded number."""
    data, ids = tmp_path / "dump/test", [path.stem for path in tones]
    same = {i: i for i in ids}
    for name, table in {
        "wav.scp": dict(zip(ids, map(str, tones))), "text": dict.fromkeys(ids, "call ann"),
        "utt2spk": same, "spk2utt": same, "utt2lang": dict.fromkeys(ids, "en"),
    }.items():  # fmt: skip
        write_kaldi_table(data / name, table)
    loaded = load_recogniser(experiment.backbone_dir, experiment.config, experiment.model)
    rule = Rule("decode_x", build(DecodeConfig, load_yaml(experiment.decode)))
    run_job(loaded, [rule], data, tmp_path, 1, 1)
    merge_jobs(tmp_path, "decode_x", data, 1)
    folder = job_dir(tmp_path, "decode_x", "test", 1)
    text = read_kaldi_table(folder / "1best_recog/text", allow_empty=True)
    score = read_kaldi_table(folder / "1best_recog/score")
    traces = {row["utt_id"]: row for row in map(json.loads, open(folder / "latent.jsonl"))}
    found = asr(tones)
    for utt_id, ((words, tokens, token_ids, hypothesis),) in zip(ids, found, strict=True):
        trace = traces[utt_id]
        assert words == text[utt_id] and repr(hypothesis.score) == score[utt_id]
        assert len(tokens) == len(token_ids) == len(hypothesis.tokens)
        for name in ("values", "steps", "stopped", "update_norms", "update_cosines", "update_jumps"):
            assert getattr(hypothesis.trace, name) == trace[name]
        assert hypothesis.capped == trace["capped"]
    assert len({row["steps"] for row in traces.values()}) > 1, "clips should go to different depths"
    identity = json.loads((tmp_path / "decode_x/test/identity.json").read_text())
    assert found[0][0][3].metadata["model"] == identity["model"]
    assert found[0][0][3].metadata["backbone"] == identity["backbone"]


def test_folder_zip_stage_five_and_espnets_keywords_load_the_same(
    asr, packed, experiment, tiny_backbone_dir, tones
):
    expected = [h.trace for ((*_, h),) in asr(tones[:3])]
    others = (
        Speech2Text.from_pretrained(packed.with_name("adapter.zip"), backbone=experiment.backbone_dir),
        Speech2Text(
            asr_train_config=packed / CONFIG, asr_model_file=packed / ADAPTER, backbone=tiny_backbone_dir
        ),
    )
    for other in others:
        assert [h.trace for ((*_, h),) in other(tones[:3])] == expected


def test_a_recogniser_that_no_hub_has_must_be_named(packed):
    with pytest.raises(ConfigError, match="trained on a local recogniser.*backbone=FOLDER"):
        Speech2Text.from_pretrained(packed)
    pack = read_folder(packed)
    assert recogniser_config(pack, f"owner/name@{COMMIT}").revision == COMMIT
    with pytest.raises(ConfigError, match="no such folder; a hub id needs its commit"):
        recogniser_config(pack, "owner/name")


@pytest.fixture(scope="module")
def other_backbone_dir(tiny_backbone_dir, tmp_path_factory):
    """The same recogniser with a changed embedding table: another revision."""
    import safetensors.torch

    folder = tmp_path_factory.mktemp("other") / "revised"
    shutil.copytree(tiny_backbone_dir, folder)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (table,) = [key for key in weights if key.endswith("embed_tokens.weight")]
    weights[table] = weights[table] * 1.01
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_another_recogniser_is_refused(packed, other_backbone_dir):
    with pytest.raises(ConfigError, match="trained on.*this recogniser is.*allow_other_backbone"):
        Speech2Text.from_pretrained(packed, backbone=other_backbone_dir)


def test_another_recogniser_that_is_allowed_is_said(packed, asr, other_backbone_dir, tones, caplog):
    other = Speech2Text.from_pretrained(packed, backbone=other_backbone_dir, allow_other_backbone=True)
    assert "its results are not those of its card" in caplog.text
    (one,), (two,) = other(tones[0]), asr(tones[0])
    assert one[3].metadata["other_backbone"] is True and two[3].metadata["other_backbone"] is False
    assert one[3].metadata["backbone"] != one[3].metadata["trained_on"] == two[3].metadata["backbone"]
    assert one[3].metadata["model"] == two[3].metadata["model"] + "-on-other"
    # The anchor is the recogniser's own, whichever it is.
    table = other.recogniser.backbone.embedding_table
    assert any(torch.equal(other.recogniser.method.adapter.anchor, row) for row in table)


def test_a_recogniser_of_another_size_is_refused_whatever_is_allowed(packed, tmp_path, tiny_whisper_dir):
    with pytest.raises(ConfigError, match="model_type 'whisper', expected 'qwen3_asr'"):
        Speech2Text.from_pretrained(packed, backbone=tiny_whisper_dir, allow_other_backbone=True)


def test_tensors_that_do_not_fit_are_refused(packed, tiny_backbone_dir, tmp_path):
    import dataclasses

    import safetensors.torch

    from espnet_latentasr.backbone.registry import load_backbone
    from espnet_latentasr.decode.pretrained import load_packed_method

    pack = read_folder(packed)
    backbone = load_backbone(recogniser_config(pack, tiny_backbone_dir))
    tensors = safetensors.torch.load(pack.adapter)

    def load(**changes):
        data = safetensors.torch.save({k: v for k, v in (tensors | changes).items() if v is not None})
        return load_packed_method(dataclasses.replace(pack, adapter=data), backbone)

    load()
    key = "value_head.linear.bias"
    with pytest.raises(ConfigError, match=f"do not fit.*{key}"):
        load(**{key: None})
    with pytest.raises(ConfigError, match=rf"{key} has shape \(2,\), this configuration"):
        load(**{key: torch.zeros(2)})
    with pytest.raises(DataError, match=f"{key} has values that are not finite"):
        load(**{key: torch.full((1,), float("nan"))})
    with pytest.raises(DataError, match="damaged"):
        load_packed_method(dataclasses.replace(pack, adapter=b"x" * 20), backbone)


# ---- places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, revision, message",
    [
        ("no_such.zip", None, "no such folder or zip, and no hub id"),
        ("owner/name", None, "needs its revision, a commit hash of 40 hex digits"),
        ("owner/name", "main", "got 'main'"),
        ("owner/name", "abcdef1", "got 'abcdef1'"),
        ("../../x", COMMIT, "no such folder or zip, and no hub id"),
    ],
)
def test_names_that_lead_nowhere(name, revision, message):
    with pytest.raises(ConfigError, match=message):
        find_pack(name, revision)


def test_a_revision_of_something_local_is_an_error(packed):
    with pytest.raises(ConfigError, match="without effect"):
        find_pack(packed, COMMIT)
    with pytest.raises(DataError, match=f"no {CONFIG}"):
        find_pack(packed.parent)


def test_a_hub_that_cannot_be_reached_is_said():
    with pytest.raises(ConfigError, match="not in the cache and the hub cannot be reached"):
        download("owner/name", COMMIT, [CONFIG])


class Hub(BaseHTTPRequestHandler):
    """What a hub answers for files of a repository at a commit."""

    def reply(self, body: bool):
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        head, _, name = self.path.rpartition("/")
        path = self.server.folder / name
        if head != f"/owner/adapter/resolve/{COMMIT}" or not path.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{name}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def do_HEAD(self):
        self.reply(False)

    def do_GET(self):
        self.reply(True)

    def log_message(self, *words):
        pass


CALL = """
import logging, sys
logging.basicConfig(level="INFO")
from espnet_latentasr.backbone.hub import download
print(sorted(p.name for p in download("owner/adapter", sys.argv[1], sys.argv[2:]).values()))
"""


def test_files_come_from_the_commit_and_then_from_the_cache(packed, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.folder, server.asked = packed, []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        env = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_secretsecret", "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }  # fmt: skip

        def call(*files, **more):
            words = [sys.executable, "-c", CALL, COMMIT, *files]
            return subprocess.run(words, env=env | more, capture_output=True, text=True)

        first = call(CONFIG, ADAPTER)
        assert first.returncode == 0, first.stderr
        assert first.stdout == f"{sorted([CONFIG, ADAPTER])}\n"
        # The library may ask its hub for other things than files.
        asked = {path: token for _, path, token in server.asked if "/resolve/" in path}
        assert asked.keys() == {f"/owner/adapter/resolve/{COMMIT}/{name}" for name in (CONFIG, ADAPTER)}
        # It sends the token to its hub; we do not write it anywhere.
        assert set(asked.values()) == {"Bearer hf_secretsecret"}
        assert "hf_secretsecret" not in first.stdout + first.stderr
        missing = call("no_such.json")
        assert "no_such.json cannot be had (" in missing.stderr
        server.shutdown()
    again = call(CONFIG, ADAPTER, HF_HUB_OFFLINE="1")
    assert again.stdout == first.stdout, again.stderr


# ---- machines ----------------------------------------------------------------------------------


def test_a_machine_without_gpu_says_what_to_do(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ConfigError, match="torch sees no GPU.*use device='cpu'"):
            check_device(device, "float32")
    assert check_device("auto", "float32") == "cpu" and caplog.text == ""
    assert check_device("cpu", "bfloat16") == "cpu" and "slow" in caplog.text
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert check_device("auto", "bfloat16") == "cuda"


def test_the_package_stays_light_and_the_name_is_there():
    code = (
        "import sys, espnet_latentasr as e; assert 'Speech2Text' in dir(e)\n"
        "heavy = {'torch', 'transformers', 'numpy', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "try: e.no_such\nexcept AttributeError as x: assert 'no_such' in str(x)\nelse: sys.exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stage_fives_record_is_named_by_its_folder(packed, experiment):
    config = recogniser_config(read_folder(packed), experiment.backbone_dir)
    assert config.name == json.loads((experiment.backbone_dir / RECORD).read_text())["config"]["name"]
