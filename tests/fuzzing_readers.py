"""Every reader of files that a user may hand over, with a small valid file to damage.

``READERS`` start without torch, ``MODEL_READERS`` need it.  Readers are imported when they read, so
that a single one starts fast.  One long list on purpose: a reader is a function and its seed file, and
the tool and the tests draw from the same.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzzing import Reader, finite

REF = {"u1": "turn on the light", "u2": "call ann", "u3": "nine zero"}


def rows(*objects: Any) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects).encode()


def at(name: str, content: bytes | Callable[[], bytes], **others: bytes) -> Callable[[Path], Path]:
    """Return a seed that writes ``name``, and other files (``__`` for the dot) beside it."""

    def seed(folder: Path) -> Path:
        for other, data in others.items():
            path = folder / other.replace("__", ".")
            path.write_bytes(data)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content() if callable(content) else content)
        return path

    return seed


# ---- Kaldi directories ------------------------------------------------------------------------

KALDI = {
    "wav.scp": b"r1 /x/r1.wav\nr2 /x/r2.flac\n",
    "text": "s1-u1 turn on the light\ns1-u2 call ann\ns2-u3 schöne Grüße\n".encode(),
    "utt2spk": b"s1-u1 s1\ns1-u2 s1\ns2-u3 s2\n",
    "spk2utt": b"s1 s1-u1 s1-u2\ns2 s2-u3\n",
    "utt2lang": b"s1-u1 en\ns1-u2 en\ns2-u3 de\n",
    "segments": b"s1-u1 r1 0.0 1.25\ns1-u2 r1 1.25 -1\ns2-u3 r2 0.5 2\n",
}


def kaldi_seed(name: str) -> Callable[[Path], Path]:
    def seed(folder: Path) -> Path:
        for other, data in KALDI.items():
            (folder / other).write_bytes(data)
        return folder / name

    return seed


def read_kaldi(path: Path) -> None:
    from espnet_latentasr.data.kaldi_dir import KaldiDir

    data = KaldiDir.load(path.parent)
    for utt in data.utts:
        _, start, end = data.source(utt)
        assert 0 <= start < (math.inf if end is None else end) and "|" not in data.source(utt).path[-1:]
    saved = path.parent.parent / "saved"
    assert data.save(saved) and KaldiDir.load(saved).text == data.text, "saved and read again differs"


def fix_kaldi(path: Path) -> None:
    from espnet_latentasr.data.kaldi_dir import fix_data_dir

    assert fix_data_dir(path.parent, path.parent.parent / "fixed").kept > 0


def import_kaldi(path: Path) -> None:
    from espnet_latentasr.data.kaldi_source import read_source

    assert read_source(path.parent, "en").utts


# ---- formats ----------------------------------------------------------------------------------


@cache
def sound(form: str, subtype: str | None = None, seconds: float = 0.25) -> bytes:
    import soundfile

    samples = np.sin(np.arange(int(16000 * seconds)) / 9) * 0.4
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format=form, subtype=subtype)
    return buffer.getvalue()


def check_read(found: Any) -> None:
    for one in found.utterances:
        _, start, end = one.source
        assert isinstance(one.text, str) and one.utt_id.encode() is not None
        assert finite(start) and start >= 0, f"span begins at {start}"
        assert end is None or finite(end) and end > start, f"span {start} to {end}"
        assert one.language is None or isinstance(one.language, str)
        assert one.speaker is None or isinstance(one.speaker, str)


def read_format(reader: str, **options: Any) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        from espnet_latentasr.data.formats import READERS as FORMATS
        from espnet_latentasr.data.formats import ReadOptions, convert
        from espnet_latentasr.data.formats.kaldi import KaldiOptions

        folder = reader == "lhotse" or path.suffix in (".arrow", ".json")
        out = path.parent.parent / "out"
        where, how = [path.parent if folder else path], ReadOptions(output=out, **options)
        check_read(FORMATS[reader](where, how))
        convert(reader, "kaldi", where, out / "kaldi", how, KaldiOptions("en", overwrite=True))

    return read


NEMO = rows(
    {"audio_filepath": "a.wav", "duration": 0.25, "text": "call ann", "lang": "en", "speaker": "s1"},
    {"audio_filepath": "b.wav", "offset": 0.0, "duration": 0.1, "text": "nine", "utt_id": "x"},
    {"audio_filepath": "b.wav", "offset": 0.1, "duration": 0.1, "text": "zero", "utt_id": "y"},
)
RECORDINGS = rows(
    {"id": "r1", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}],
     "sampling_rate": 16000, "num_samples": 4000, "duration": 0.25, "channel_ids": [0]},
    {"id": "r2", "sources": [{"type": "file", "channels": [0], "source": "b.wav"}], "duration": 0.25},
)  # fmt: skip
SUPERVISIONS = rows(
    {"id": "s1", "recording_id": "r1", "start": 0.0, "duration": 0.25, "channel": 0, "text": "call ann",
     "language": "en", "speaker": "ann"},
    {"id": "s2", "recording_id": "r2", "start": 0.1, "duration": 0.1, "channel": [0], "text": "nine"},
)  # fmt: skip


def sounds() -> dict[str, bytes]:
    return {"a__wav": sound("WAV"), "b__wav": sound("WAV")}


def with_sounds(name: str, content: Any, **others: bytes) -> Callable[[Path], Path]:
    return lambda folder: at(name, content, **sounds(), **others)(folder)


def table():
    import pyarrow as pa

    clips = [{"bytes": sound("WAV"), "path": f"u{i}.wav"} for i in range(3)]
    about = {"info": {"features": {"text": {"dtype": "string"}, "label": {"names": ["a", "b"]}}}}
    columns = {"audio": clips, "text": list(REF.values()), "label": [0, 1, 0]}
    made = pa.table(columns)
    return made.replace_schema_metadata({"huggingface": json.dumps(about)})


def parquet() -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table(), buffer)
    return buffer.getvalue()


def arrow() -> bytes:
    import pyarrow as pa

    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table().schema) as stream:
        stream.write_table(table())
    return buffer.getvalue()


STATE = json.dumps({"_data_files": [{"filename": "data.arrow"}], "_split": "train"}).encode()
INFO = json.dumps({"features": {"text": {"dtype": "string"}, "label": {"names": ["a", "b"]}}}).encode()


def hf_seed(name: str) -> Callable[[Path], Path]:
    def seed(folder: Path) -> Path:
        files = {"state__json": STATE, "dataset_info__json": INFO, "data__arrow": arrow()}
        content = files.pop(name.replace(".", "__"))
        return at(name, content, **files)(folder)

    return seed


# ---- sounds and archives ----------------------------------------------------------------------


def read_sound(path: Path, place: str = "") -> None:
    from espnet_latentasr.data.audio import read_audio, read_header

    rate, frames, channels = read_header(f"{path}{place}", "u")
    assert rate > 0 and frames >= 0 and channels > 0
    found = read_audio(f"{path}{place}", "u", channel="mix")
    assert found.dtype == np.float32 and found.ndim == 1 and np.isfinite(found).all() and len(found)


def ark(form: str) -> bytes:
    import kaldiio

    buffer = io.BytesIO()
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    options: dict[str, Any] = {}
    entries: dict[str, Any] = {"u1": matrix, "u2": matrix[:2]}
    if form == "compressed":
        options["compression_method"] = 2
    elif form == "text":
        options["text"] = True
    elif form == "double":
        entries = {utt: m.astype(np.float64) for utt, m in entries.items()}
    elif form == "vectors":
        entries = {"u1": matrix[0], "u2": np.arange(5, dtype=np.int32)}
    elif form == "npy":
        options["write_function"] = "numpy"
    elif form == "wav":
        entries = {"u1": (16000, (matrix.ravel() * 9000).astype(np.int16))}
    elif form == "audio":
        entries = {"u1": (matrix.ravel() / 4, 16000)}
        options |= {"write_function": "soundfile", "write_kwargs": {"format": "flac"}}
    kaldiio.save_ark(buffer, entries, **options)
    return buffer.getvalue()


def read_ark(path: Path) -> None:
    from espnet_latentasr.data.ark import load_ark

    for utt, entry in load_ark(path):
        matrix = entry[1] if isinstance(entry, tuple) else entry
        assert utt and matrix.nbytes <= 64 * path.stat().st_size, f"{matrix.shape} from that file"


def read_scp(path: Path) -> None:
    from espnet_latentasr.data.ark import load_mat
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.errors import DataError

    for utt, place in read_kaldi_table(path, require_sorted=False).items():
        try:
            load_mat(place.replace("HERE", str(path.parent)))
        except (OSError, ValueError) as error:  # as every caller does
            raise DataError(f"{path}: utterance '{utt}': {error}") from None


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in (("a/b.txt", b"text\n"), ("a/c.wav", sound("WAV"))):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def read_tar(path: Path) -> None:
    import shutil

    from espnet_latentasr.data.fetch import unpack

    target = path.parent.parent / "unpacked"
    shutil.rmtree(target, ignore_errors=True)
    unpack(path, target)
    assert all(p.resolve().is_relative_to(target.resolve()) for p in target.rglob("*"))


# ---- lists and language models ------------------------------------------------------------------

META = {"gen": "ar-sample", "G": 2, "norm": "none", "model": "m-1", "seed": 1, "scorers": ["pll"]}


def candidate(text: str, logp: float, **more: Any) -> dict[str, Any]:
    tokens = [len(word) for word in text.split()]
    return {"text": text, "surface": text, "tokens": tokens, "am_logp": logp, "count": 1,
            "scores": {"pll": -3.5}, "n_tok": len(tokens), "n_char": len(text)} | more  # fmt: skip


NBEST = rows(*(
    {"utt_id": utt, "ref": ref, "meta": META, "greedy_idx": 0,
     "hyps": [candidate(ref, -0.5), candidate(ref + " ann", -1.5, path_logp=-2.0)]}
    for utt, ref in REF.items()
))  # fmt: skip
ARPA = (
    b"\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-99\t<s>\t-0.3\n-0.6\t</s>\n-0.7\t<unk>\n"
    b"-0.5\tcall\t-0.2\n"
    b"\n\\2-grams:\n-0.1\t<s> call\n-0.2\tcall </s>\n\n\\end\\\n"
)


def read_lists(path: Path) -> None:
    from espnet_latentasr.errors import DataError
    from espnet_latentasr.rescoring.nbest_list import deduplicate, parse_row, read_nbest, to_row

    for nbest in read_nbest(path):
        again = parse_row(json.loads(json.dumps(to_row(nbest), allow_nan=False)))
        assert again == nbest, "written and read again differs"
        try:
            deduplicate(nbest)
        except DataError:
            pass  # says which utterance; commands put the file before it


def read_lm(path: Path) -> None:
    from espnet_latentasr.rescoring.ngram import read_arpa

    model = read_arpa(path)
    assert model.order < 10
    for words in model.table:
        if model.table.get(words[-1:]):
            assert not math.isnan(model.log10(words[-1], words[:-1]))


# ---- decodings and tables -----------------------------------------------------------------------

PER_UTT = b"utt,spk,ref_len,C,S,D,I,ref,hyp\n" + b"".join(
    f"{utt},s,{len(ref.split())},{len(ref.split()) - 1},1,0,0,{ref},{ref}\n".encode()
    for utt, ref in REF.items()
)
SCORE = json.dumps(
    {"unit": "wer", "normalizer": "none", "counts": {"sentences": 3}, "rates": {"Err": 37.5}}
).encode()
LATENT = rows(*(
    {"utt_id": utt, "steps": 1, "stopped": "budget", "capped": False, "audio_seconds": 1.5,
     "values": [0.1, -0.2], "update_norms": [1.0], "update_cosines": [0.5], "update_jumps": [0.1],
     "seconds": {"encode": 0.1, "prefill": 0.1, "loop": 0.1, "decode": 0.2}}
    for utt in REF
))  # fmt: skip
DEPTHS = rows(*(
    {"utt_id": utt, "hyps": [{"text": t, "depth": k, "am_logp": -1.0 - k, "n_tok": 2}
                             for k, t in enumerate((ref, ref + " on"))]}
    for utt, ref in REF.items()
))  # fmt: skip
IDENTITY = json.dumps({"backbone": "b", "model": "m", "decode": "d", "prompt": {"context": ""}}).encode()
DECODED = {
    "exp/dec/set/score_wer/per_utt.csv": PER_UTT,
    "exp/dec/set/score_wer/score.json": SCORE,
    "exp/dec/set/latent.jsonl": LATENT,
    "exp/dec/set/nbest.jsonl": DEPTHS,
    "exp/dec/set/identity.json": IDENTITY,
}


def decoded_seed(name: str) -> Callable[[Path], Path]:
    def seed(folder: Path) -> Path:
        for other, data in DECODED.items():
            path = folder / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return next(folder / other for other in DECODED if other.endswith(name))

    return seed


def read_scored(path: Path) -> None:
    from espnet_latentasr.analysis.decoded import read_decoded

    folder = path.parent.parent if path.parent.name == "score_wer" else path.parent
    found = read_decoded(folder)
    assert len(found.utts) == len(found.errors) == len(found.values) and (found.errors >= 0).all()


def read_all_depths(path: Path) -> None:
    from espnet_latentasr.analysis.depths import has_all_depths, read_depths
    from espnet_latentasr.text.normalize import get_normalizer

    has_all_depths(path.parent)
    found = read_depths(path.parent, REF, get_normalizer("none"))
    assert np.isfinite(found.values).all() and np.isfinite(found.log_probs).all()


RESULT = (
    b"|SPKR|# Snt|# Wrd|Corr|Sub|Del|Ins|Err|S.Err|\n| s1 | 3 8 | 87.5 12.5 0.0 0.0 12.5 33.3 |\n"
    b"| Sum/Avg | 3 8 | 87.5 12.5 0.0 0.0 12.5 33.3 |\n"
)


def read_result(path: Path) -> None:
    from espnet_latentasr.text.sclite import read_result_row

    row = read_result_row(path)
    assert len(row) == 8 and isinstance(row["Snt"], int)


def csv_of(*columns: str, count: int = 2) -> bytes:
    lines = [",".join(columns)] + [",".join("1.5" for _ in columns)] * count
    return ("\n".join(lines) + "\n").encode()


def read_study(path: Path) -> None:
    from espnet_latentasr.report.oracle_summary import summary_markdown

    assert summary_markdown(path.parent.parent)


CONDITIONS = csv_of(
    "condition", "rule", "utterances", "G", "greedy", "oracle", "error rate", "delta", "Holm p"
)  # fmt: skip
CONDITIONS = CONDITIONS.replace(b"\n1.5,1.5,1.5,1.5,", b"\nall,mbr,3,8,")


def study_seed(folder: Path) -> Path:
    path = at("report/conditions.csv", CONDITIONS)(folder)
    (path.parent / "oracle_gap.md").write_text("# Oracle gap\n\n3 utterances\n")
    return path


def read_gap_table(path: Path) -> None:
    from espnet_latentasr.report.sequence_report import read_gaps

    assert all(finite(row["gap"]) or row["gap"] is None for row in read_gaps(path))


GAPS = csv_of("checkpoint", "G", "utterances", "candidates", "greedy", "oracle", "gap", "low", "high",
              "greedy macro", "oracle macro", "usable", "better")  # fmt: skip
GAPS = GAPS.replace(b"\n1.5,1.5,1.5,", b"\na,8,3,")
MEASURED = json.dumps({"device": "cpu", "rows": [
    {"batch_size": 1, "configuration": "frozen", "utterances": [1, 1], "audio": [2.0, 3.0],
     "seconds": [0.5, 0.25], "peak_bytes": 100}]}).encode()  # fmt: skip


def read_latency(path: Path) -> None:
    from espnet_latentasr.analysis.throughput import read_measured

    read_measured(path)


# ---- configurations -----------------------------------------------------------------------------

DECODE = b"# a rule\nhalting: {kind: threshold, theta: 0.5}\non_halt: keep\nbatch_size: 16\n"
DECODE += b"prompt: {context: ''}\n"
TRAIN = b"""adaptation: latent
backbone_conf: {kind: mini, name: x}
latent_conf:
  steps: 2
  scale: {init: 0.2, cap: 3.0}
value_conf: {alpha: 0.9}
loss_conf: {cycle: 1e-1}
seed: 1
"""
RULE = b"kind: mbr\nloss: cer\nposterior: {kind: loglinear, tau: 10.0}\nscore: {pll: 1.0}\n"
GRID = b"one:\n  rule: {kind: mbr}\n  try: {posterior.tau: [1.0, 10.0], loss: [cer, wer]}\n"
GRID += b"two:\n  rule: {kind: mbr}\n  simplex: {keys: [score.pll, score.am], step: 0.5}\n"
FAMILY = b"one:\n  decode: d.yaml\n  reference: a\n  systems:\n    a: {asr: a.yaml}\n"
FAMILY += b"    b: {asr: b.yaml, num_activation: 10}\n"
MIXTURE = b"m:\n  seed: 1\n  size: 4\n  pool: 8\n  split: train\n  shares:\n    a: {quota: 3, cap: 2}\n"
MIXTURE += b"    b: {quota: 1, parts: [en]}\n"
SAVED = b"train_data_path_and_name_and_type:\n- - dump/train/wav.scp\n  - speech\n  - sound\n"
SAVED += b"valid_data_path_and_name_and_type: []\n"


def read_decode(path: Path) -> None:
    from espnet_latentasr.config import DecodeConfig, build, config_hash, load_yaml

    assert config_hash(build(DecodeConfig, load_yaml(path), str(path)))


def read_train(path: Path) -> None:
    from espnet_latentasr.config import ConfigError, config_hash, load_yaml, model_config

    keys = load_yaml(path)
    try:
        sections = {k.removesuffix("_conf"): v for k, v in keys.items() if str(k).endswith("_conf")}
        assert config_hash(model_config(keys.get("adaptation"), sections))
    except ConfigError as error:  # ESPnet's task names the file
        raise ConfigError(f"{path}:0: {error}") from None


def read_rule(path: Path) -> None:
    from espnet_latentasr.rescoring.config import load_rescore_config

    load_rescore_config(path)


def read_reranker(path: Path) -> None:
    from espnet_latentasr.rescoring.rerankers_config import load_reranker_config

    load_reranker_config(path)


def read_grid(path: Path) -> None:
    from espnet_latentasr.rescoring.grid import load_grid

    assert load_grid(path)


def read_families(path: Path) -> None:
    from espnet_latentasr.analysis.family_plan import plan, read_family

    assert plan([read_family(path, "one", 5)], [1], "") is not None


def read_mixtures(path: Path) -> None:
    from espnet_latentasr.data.mixture import load_mixture

    assert load_mixture("m", path).pool > 0


def read_sets(path: Path) -> None:
    from espnet_latentasr.report.experiment import training_sets

    assert all(isinstance(name, str) for name in training_sets(path.parent))


# ---- records of our own -------------------------------------------------------------------------

MANIFEST = b"utt\tcorpus\tlocale\tlang\tspeaker\tseconds\ttext_sha256\nu1\ta\ten\ten\ts\t1.50\tab\n"
MANIFEST += b"u2\ta\ten\ten\ts\t2.50\tcd\n"
SKIPPED = b"utt\treason\tdetail\nu1\tempty\t0.000 s\n"
FROZEN = json.dumps({"config": {"kind": "mini", "name": "x"}, "fingerprint": "sha256:ab", "parameters": 7,
                     "library": "transformers 5"}).encode()  # fmt: skip


def read_drawn(path: Path) -> None:
    from espnet_latentasr.data.manifest import read_manifest

    read_manifest(path)


def read_left_out(path: Path) -> None:
    from espnet_latentasr.data.skipped import read_skipped

    read_skipped(path)


def read_prepared(path: Path) -> None:
    from espnet_latentasr.data.activation import Pool

    Pool([path.parent], "train")


def read_suite(path: Path) -> None:
    import hashlib

    from espnet_latentasr.data.kaldi_dir import KaldiDir
    from espnet_latentasr.data.stress import read_manifest

    text = {"u1": "a", "u2": "b"}
    data = KaldiDir(path.parent, {utt: "/x" for utt in text}, text, {utt: utt for utt in text})
    assert hashlib and read_manifest(path, {"s": data})


def prepared_seed(folder: Path) -> Path:
    kaldi_seed("text")(folder)
    return at("prepared.json", b'{"split": "train", "corpus": "c", "part": "en"}')(folder)


def suite() -> bytes:
    import hashlib

    lines = ["set\tutt\ttext_sha256"]
    for utt, text in (("u1", "a"), ("u2", "b")):
        lines.append(f"s\t{utt}\t{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    return ("\n".join(lines) + "\n").encode()


def read_backbone(path: Path) -> None:
    from espnet_latentasr.backbone.frozen import read_frozen

    assert read_frozen(path.parent).parameters is not None


def read_model_type(path: Path) -> None:
    from espnet_latentasr.backbone.hub import model_type

    model_type(path.parent)


def journal_rows(path: Path) -> None:
    from dataclasses import dataclass

    from espnet_latentasr.data.journal import finished

    @dataclass
    class Result:
        utt_id: str
        fingerprint: str
        path: str
        problem: None = None

    assert all(isinstance(one.path, str) for one in finished(path, Result))


JOURNAL = rows(*({"utt_id": u, "fingerprint": "f", "path": f"/x/{u}", "problem": None} for u in REF))


# ---- packs and checkpoints ------------------------------------------------------------------------


@cache
def pack_files() -> dict[str, bytes]:
    from espnet_latentasr.config import DecodeConfig, model_config
    from espnet_latentasr.decode.pack_format import ADAPTER, CONFIG, Pack, Recogniser, config_text

    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    adapter = struct.pack("<Q", len(header)) + header + bytes(8)
    base = Recogniser("mini", "x", None, "float32", "sha256:ab", 7, True)
    method = model_config("latent", {"latent": {"steps": 2}})
    pack = Pack("m", base, method, DecodeConfig(), "d", "en", 2, {"torch": "2"}, adapter)
    return {CONFIG: config_text(pack).encode(), ADAPTER: adapter}


def pack_seed(name: str) -> Callable[[Path], Path]:
    def seed(folder: Path) -> Path:
        for other, data in pack_files().items():
            (folder / other).write_bytes(data)
        return folder / name

    return seed


def read_pack(path: Path) -> None:
    from espnet_latentasr.decode.pack_format import read_folder, read_zip

    found = read_zip(path) if path.suffix == ".zip" else read_folder(path.parent)
    assert found.adapter == pack_files()["adapter.safetensors"]


def packed() -> bytes:
    from espnet_latentasr.decode.pack_format import zip_bytes

    return zip_bytes(pack_files())


def checkpoint(released: bool) -> bytes:
    import torch

    def draw(*shape: int) -> torch.Tensor:
        return torch.ones(*shape) / 8

    if not released:
        states: dict[str, Any] = {
            "method.adapter.w": draw(4, 4),
            "method.value_head.linear.bias": draw(1),
        }
    else:
        states = {
            "epoch": 1, "n_latent": 2, "model_id": "m", "step_embed": draw(2, 4), "log_scale": draw(2),
            "init_proj": {"weight": draw(4, 4), "bias": draw(4)},
            "delta_proj": {"weight": draw(4, 4), "bias": draw(4)}, "step_proj": {"weight": draw(4, 4)},
            "value_head": {"weight": draw(1, 4), "bias": draw(1)},
            "injection_gate": {"0.weight": draw(4, 8), "0.bias": draw(4)},
        }  # fmt: skip
    buffer = io.BytesIO()
    torch.save(states, buffer)
    return buffer.getvalue()


def read_checkpoint(path: Path) -> None:
    from espnet_latentasr.decode.loading import read_tensors

    assert all(bool(value.isfinite().all()) for value in read_tensors(path).values())


def read_published(path: Path) -> None:
    from espnet_latentasr.adaptation.released_checkpoint import read_released

    assert read_released(path).width == 4


def read_saved_config(path: Path) -> None:
    from espnet_latentasr.decode.loading import read_model_config

    read_model_config(path)


def read_adapter(path: Path) -> None:
    """What `load_packed_method` does before it needs a recogniser."""
    import safetensors.torch

    from espnet_latentasr.errors import DataError

    try:
        safetensors.torch.load(path.read_bytes())
    except Exception as error:
        raise DataError(f"{path}: damaged ({error})") from None


def read_token_file(path: Path) -> None:
    from espnet_latentasr.rescoring.ctc_nbest import read_token_list

    tokens, blank = read_token_list(path, "<blank>")
    assert tokens[blank] == "<blank>"


SAVED_MODEL = TRAIN + b"prompt_conf: {}\nschedule_conf: {}\nbackbone_fingerprint: sha256:ab\n"

READERS = [
    *(Reader(f"kaldi {name}", kaldi_seed(name), read_kaldi) for name in KALDI),
    *(Reader(f"fix {name}", kaldi_seed(name), fix_kaldi) for name in ("wav.scp", "text", "segments")),
    Reader("import text", kaldi_seed("text"), import_kaldi),
    Reader("nemo", with_sounds("manifest.jsonl", NEMO), read_format("nemo", language="en")),
    Reader(
        "lhotse recordings",
        with_sounds("recordings.jsonl", RECORDINGS, supervisions__jsonl=SUPERVISIONS),
        read_format("lhotse", language="en"),
    ),
    Reader(
        "lhotse supervisions",
        with_sounds("supervisions.jsonl", SUPERVISIONS, recordings__jsonl=RECORDINGS),
        read_format("lhotse", language="en"),
    ),
    Reader(
        "lhotse .gz",
        with_sounds(
            "supervisions.jsonl.gz", gzip.compress(SUPERVISIONS, mtime=0), recordings__jsonl=RECORDINGS
        ),
        read_format("lhotse", language="en"),
    ),
    *(
        Reader(
            f"audio {form}", at(f"x.{form.lower()}", lambda form=form: sound(form)), read_sound, place=""
        )
        for form in ("WAV", "FLAC", "OGG", "AIFF", "AU", "W64", "RF64", "CAF", "MP3", "NIST")
    ),
    Reader(
        "audio in ark (wav)", at("x.ark", lambda: ark("wav")), lambda p: read_sound(p, ":3"), place=""
    ),
    Reader(
        "audio in ark (flac)", at("x.ark", lambda: ark("audio")), lambda p: read_sound(p, ":3"), place=""
    ),
    *(
        Reader(f"ark {form}", at("x.ark", lambda form=form: ark(form)), read_ark, place="at byte|u\\d")
        for form in ("float", "double", "compressed", "text", "vectors", "npy", "wav")
    ),
    Reader(
        "scp", at("x.scp", b"u1 HERE/x.ark:3\nu2 HERE/x.ark:69[0:0,1:2]\n", x__ark=ark("float")), read_scp
    ),
    Reader("tar.gz", at("x.tar.gz", tar), read_tar, place=""),
    Reader("nbest.jsonl", at("nbest.jsonl", NBEST), read_lists),
    Reader("ARPA", at("lm.arpa", ARPA), read_lm, whole="announced|end|cannot be read"),
    Reader(
        "ARPA .gz",
        at("lm.arpa.gz", gzip.compress(ARPA, mtime=0)),
        read_lm,
        whole="announced|end|cannot be read",
    ),
    *(
        Reader(
            f"decoded {name}",
            decoded_seed(name),
            read_scored,
            place=r":\d+|utterance '|id '" if name.endswith(("csv", "jsonl")) else "",
        )
        for name in ("per_utt.csv", "score.json", "latent.jsonl", "identity.json")
    ),
    Reader(
        "depths nbest.jsonl",
        decoded_seed("nbest.jsonl"),
        read_all_depths,
        place=r":\d+|utterance '|first '",
    ),
    Reader(
        "depths latent.jsonl",
        decoded_seed("latent.jsonl"),
        read_all_depths,
        place=r":\d+|utterance '|first '",
    ),
    Reader("result.txt", at("result.txt", RESULT), read_result, place=r":\d+|Sum/Avg"),
    Reader("conditions.csv", study_seed, read_study),
    Reader("training_gap.csv", at("gaps.csv", GAPS), read_gap_table),
    Reader("latency JSON", at("measured.json", MEASURED), read_latency, place=""),
    Reader("decode YAML", at("decode.yaml", DECODE), read_decode, place="yaml"),
    Reader("training YAML", at("train.yaml", TRAIN), read_train, place="yaml"),
    Reader("rescoring YAML", at("rule.yaml", RULE), read_rule, place="yaml"),
    Reader(
        "reranker YAML",
        at("reranker.yaml", b"kind: features\nheld_out: 0.1\nseed: 4\n"),
        read_reranker,
        place="yaml",
    ),
    Reader("grid YAML", at("grid.yaml", GRID), read_grid, place="yaml"),
    Reader("families YAML", at("families.yaml", FAMILY), read_families, place="yaml"),
    Reader("mixtures YAML", at("mixtures.yaml", MIXTURE), read_mixtures, place="yaml"),
    Reader("config.yaml (sets)", at("config.yaml", SAVED), read_sets, place="yaml"),
    Reader("manifest.tsv", at("manifest.tsv", MANIFEST), read_drawn),
    Reader("stress_suite.tsv", at("stress_suite.tsv", suite), read_suite, whole="lists nothing"),
    Reader("skipped.tsv", at("skipped.tsv", SKIPPED), read_left_out),
    Reader("prepared.json", prepared_seed, read_prepared, place=""),
    Reader("backbone.json", at("backbone.json", FROZEN), read_backbone, place=""),
    Reader(
        "config.json",
        at("config.json", b'{"model_type": "whisper", "d_model": 4}'),
        read_model_type,
        place="",
    ),
    Reader("journal", at("journal.jsonl", JOURNAL), journal_rows),
    Reader("parquet", at("data.parquet", parquet), read_format("hf", language="en"), place=""),
    Reader("arrow", hf_seed("data.arrow"), read_format("hf", language="en"), place=""),
    Reader("state.json", hf_seed("state.json"), read_format("hf", language="en"), place=""),
    Reader("dataset_info.json", hf_seed("dataset_info.json"), read_format("hf", language="en"), place=""),
    Reader("pack config.json", pack_seed("config.json"), read_pack, place=""),
    Reader("pack adapter", pack_seed("adapter.safetensors"), read_pack, place=""),
    Reader("pack zip", at("x.zip", packed), read_pack, place=""),
]
MODEL_READERS = [
    Reader("checkpoint", at("model.pth", lambda: checkpoint(False)), read_checkpoint, place=""),
    Reader("released adapter", at("adapter.pth", lambda: checkpoint(True)), read_published, place=""),
    Reader("config.yaml (model)", at("config.yaml", SAVED_MODEL), read_saved_config, place="yaml"),
    Reader("safetensors", pack_seed("adapter.safetensors"), read_adapter, place=""),
    Reader(
        "tokens.txt",
        at("tokens.txt", b"<blank>\n<unk>\n\xe2\x96\x81call\nann\n"),
        read_token_file,
        whole="no blank symbol|occurs twice|cannot be read",
    ),
]
