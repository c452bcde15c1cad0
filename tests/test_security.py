"""What must never happen: code from data, shells, secrets in files, paths out of their folder.

The first part reads the source of the whole package, the second tries the doors.
"""

import ast
import io
import json
import os
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from espnet_latentasr.backbone import hub
from espnet_latentasr.data import ark, fetch
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.errors import ConfigError, DataError

ROOT = Path(__file__).parents[1]
FILES = [
    *sorted((ROOT / "espnet_latentasr").rglob("*.py")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *sorted((ROOT / "egs2").glob("*/*/local/*.py")),
    ROOT / "setup.py",
]
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "pty"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
YAML = {"safe_load", "safe_load_all", "safe_dump", "safe_dump_all"}
SAFE_LOADERS = {"_UniqueKeys", "yaml.BaseLoader", "yaml.SafeLoader", "yaml.CSafeLoader"}
# Files that read archives with the library itself and not through data.ark: sound_files looks at the
# entry's first bytes itself.
KALDIIO = {"data/sound_files.py"}


def name_of(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute, with ``?`` for what is neither."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def constant(call: ast.Call, keyword: str) -> object:
    """Value of a keyword written out in a call, None where it is not."""
    for given in call.keywords:
        if given.arg == keyword:
            return given.value.value if isinstance(given.value, ast.Constant) else "computed"
    return None


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def findings(source: str) -> list[str]:
    """What in a source could run code that came as data, as 'line: what'."""
    tree = ast.parse(source)
    torch_load = {"torch.load"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            torch_load |= {a.asname or a.name for a in node.names if a.name == "load"}
    found = [f"0: import {name}" for name in imports(tree) if name.split(".")[0] in MODULES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values)
            keys = {k.value: v for k, v in pairs if isinstance(k, ast.Constant)}
            trusted = keys.get("trust_remote_code")
            if trusted is not None and getattr(trusted, "value", None) is not False:
                found.append(f"{node.lineno}: trust_remote_code")
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        last = name.rpartition(".")[2]
        bad = (
            name in BUILTINS
            or name in SHELLS
            or constant(node, "shell") not in (None, False)
            or constant(node, "trust_remote_code") not in (None, False)
            or constant(node, "allow_pickle") not in (None, False)
            or (name in torch_load and constant(node, "weights_only") is not True)
            or (name.startswith("yaml.") and last == "load" and not safe_loader(node))
            or (name.startswith("yaml.") and last in ("unsafe_load", "full_load", "dump", "load_all"))
            or (last in ("extractall", "extract") and constant(node, "filter") is None)
            or (last == "from_pretrained" and constant(node, "token") is not None)
        )
        if bad:
            found.append(f"{node.lineno}: {name}")
    return found


def safe_loader(call: ast.Call) -> bool:
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "Loader")]
    return len(given) == 1 and name_of(given[0]) in SAFE_LOADERS


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from dill import loads", "eval(x)", "exec(x)", "__import__(x)",
        "torch.load(p)", "torch.load(p, weights_only=False)", "torch.load(p, weights_only=w)",
        "from torch import load\nload(p)", "m.from_pretrained(n, trust_remote_code=True)",
        "m.from_pretrained(n, trust_remote_code=flag)", "where = {'trust_remote_code': True}",
        "m.from_pretrained(n, token='hf_x')", "yaml.load(t)", "yaml.load(t, yaml.Loader)",
        "yaml.unsafe_load(t)", "np.load(p, allow_pickle=True)", "subprocess.run(c, shell=True)",
        "os.system(c)", "os.popen(c)", "archive.extractall(folder)", "tar.extract(m)",
    ],
)  # fmt: skip
def test_the_reader_of_sources_sees(source):
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()", "re.compile(x)", "torch.load(p, weights_only=True)", "json.load(f)",
        "yaml.safe_load(t)", "yaml.load(t, _UniqueKeys)", "subprocess.run([c], shell=False)",
        "where = {'trust_remote_code': False}", "tar.extractall(folder, filter=inside)", "np.load(p)",
    ],
)  # fmt: skip
def test_and_it_lets_pass(source):
    assert findings(source) == []


def test_no_source_runs_code_that_came_as_data():
    found = {str(path.relative_to(ROOT)): findings(path.read_text("utf-8")) for path in FILES}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_archives_are_read_in_one_place():
    users = set()
    for path in FILES:
        calls = (n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call))
        if any(name_of(n.func).startswith(("kaldiio.load", "kaldiio.matio.")) for n in calls):
            users.add(path.relative_to(ROOT / "espnet_latentasr").as_posix())
    assert "data/ark.py" in users and users <= KALDIIO | {"data/ark.py"}


def test_no_source_reads_a_token():
    for path in FILES:
        text = path.read_text("utf-8")
        assert "HF_TOKEN" not in text and "HUGGING_FACE_HUB_TOKEN" not in text, path


# ---- the doors ---------------------------------------------------------------------------------


class Touch:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self):
        return (os.mkdir, (self.place,))


def ark_bytes(tmp_path: Path, payload: bytes) -> tuple[Path, int]:
    """An archive with one good matrix and then ``payload`` as ``evil``; where the payload begins."""
    import kaldiio

    path = tmp_path / "x.ark"
    kaldiio.save_ark(str(path), {"good": np.eye(2, dtype=np.float32)})
    offset = path.stat().st_size + len("evil ")
    with path.open("ab") as file:
        file.write(b"evil " + payload)
    return path, offset


def test_a_pickle_in_an_archive_is_not_loaded(tmp_path):
    import kaldiio

    made = tmp_path / "made"
    path, offset = ark_bytes(tmp_path, b"PKL" + pickle.dumps(Touch(made)))
    with pytest.raises(DataError, match="holds a pickle, which is code"):
        ark.load_mat(f"{path}:{offset}")
    read = ark.load_ark(path)
    assert next(read)[0] == "good"
    with pytest.raises(DataError, match="'evil': holds a pickle"):
        next(read)
    assert not made.exists()
    kaldiio.load_mat(f"{path}:{offset}")  # the library alone would
    assert made.exists()


def test_a_command_in_a_table_is_not_run(tmp_path):
    made = tmp_path / "made"
    for place in (f"mkdir {made} |", f"cat x | mkdir {made} |"):
        with pytest.raises(DataError, match="commands are never run"):
            ark.load_mat(place)
        with pytest.raises(DataError, match="missing"):
            read_audio(place, "utt1")
        for name, text in {"wav.scp": place, "text": "a", "utt2spk": "utt1"}.items():
            (tmp_path / name).write_text(f"utt1 {text}\n")
        with pytest.raises(DataError, match="is a command; commands are never run"):
            KaldiDir.load(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        list(ark.load_ark(f"mkdir {made} |"))
    assert not made.exists()


def test_good_archives_are_read_as_the_library_reads_them(tmp_path):
    import kaldiio

    matrices = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.eye(3, dtype=np.float64)}
    kaldiio.save_ark(str(tmp_path / "x.ark"), matrices, scp=str(tmp_path / "x.scp"))
    found = dict(ark.load_ark(tmp_path / "x.ark"))
    assert found.keys() == matrices.keys()
    for line in (tmp_path / "x.scp").read_text().splitlines():
        utt_id, place = line.split(maxsplit=1)
        for read in (ark.load_mat(place), found[utt_id]):
            assert read.shape == matrices[utt_id].shape and (read == matrices[utt_id]).all()
        part = ark.load_mat(f"{place}[0:0]")  # Kaldi's ranges hold their last row
        assert part.shape == (1, 3) and (part == matrices[utt_id][:1]).all()
    with pytest.raises(OSError):
        ark.load_mat(str(tmp_path / "gone.ark:4"))


def member(name, kind=tarfile.REGTYPE, link="", data=b"x", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


HOSTILE = {
    "above": [member("../evil")],
    "above, deeper": [member("a/b/../../../evil")],
    "hard link out": [member("h", tarfile.LNKTYPE, "../../outside")],
    "hard link to a file": [member("h", tarfile.LNKTYPE, "/etc/passwd")],
    "symbolic link out": [member("l", tarfile.SYMTYPE, "../outside")],
    "through a link": [member("l", tarfile.SYMTYPE, ".."), member("l/evil")],
    "through a chain of links": [
        member("d", tarfile.DIRTYPE), member("l", tarfile.SYMTYPE, "d/../.."), member("l/evil"),
    ],
    "fifo": [member("f", tarfile.FIFOTYPE)],
    "device": [member("c", tarfile.CHRTYPE)],
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_archives_that_mean_harm_leave_nothing(tmp_path, name):
    path = tmp_path / "in.tar"
    (tmp_path / "outside").write_text("mine")
    with tarfile.open(path, "w") as tar:
        tar.addfile(*member_stream(member("good")))
        for entry in HOSTILE[name]:
            tar.addfile(*member_stream(entry))
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch.unpack(path, tmp_path / "place/out")
    left = {p.name for p in tmp_path.rglob("*")} - {"place"}
    assert left == {"in.tar", "outside"} and (tmp_path / "outside").read_text() == "mine"


def member_stream(entry):
    info, data = entry
    return info, io.BytesIO(data)


def test_harmless_links_and_modes(tmp_path):
    path = tmp_path / "in.tar"
    with tarfile.open(path, "w") as tar:
        for entry in (
            member("./d/good", mode=0o4777), member("d/l", tarfile.SYMTYPE, "good"),
            member("/d/absolute"), member("d/h", tarfile.LNKTYPE, "d/good"),
        ):  # fmt: skip
            tar.addfile(*member_stream(entry))
    out = fetch.unpack(path, tmp_path / "out")
    assert {(out / "d" / name).read_text() for name in ("l", "h", "absolute")} == {"x"}
    assert (out / "d/good").stat().st_mode & 0o7022 == 0, "no set-uid, nobody else may write"


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", "abcdef1", "A" * 40, "../x"])
def test_a_hub_id_is_pinned_to_a_whole_commit(revision):
    with pytest.raises(ConfigError, match="not a commit hash of 40 hex digits"):
        hub.local_folder("owner/name", revision)
    assert hub.local_folder("owner/name", "0" * 40) is None


def test_weights_in_formats_that_hold_code_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(ConfigError, match="no .safetensors file; weights in other formats can hold code"):
        hub.fingerprint(tmp_path, "x", None)


def test_code_beside_a_model_is_not_run(tiny_backbone_dir, tmp_path):
    """A repository may bring classes of its own; the library's own are loaded all the same."""
    import shutil

    from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr

    folder, made = tmp_path / "model", tmp_path / "made"
    shutil.copytree(tiny_backbone_dir, folder)
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(made)!r})\nclass Evil: pass\n")
    for name in ("config.json", "processor_config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text())
        mapped = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoModelForSpeechSeq2Seq")
        settings["auto_map"] = dict.fromkeys(mapped, "evil.Evil") | {"AutoTokenizer": ["evil.Evil", None]}
        (folder / name).write_text(json.dumps(settings))
    assert load_qwen3_asr(str(folder)).text.tokenize("jan")
    assert not made.exists()
