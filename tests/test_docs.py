"""What the documentation says can be typed: commands parse, options, files and names exist."""

import argparse
import ast
import importlib
import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml

import espnet_latentasr

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "egs2/latentasr/asr1"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), RECIPE / "README.md", *ROOT.glob("benchmarks/*.md")]
    + [RECIPE / "local/mini_backbone/README.md"]
)
# ESPnet's parsers, which need ESPnet to be imported.
OF_ESPNET = {"asr_train", "latentasr_train", "sequence_train"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
BIN = re.compile(r"(?:python3? -m espnet_latentasr\.)?\bbin\.(\w+)(.*)")
SCRIPT = re.compile(r"^(?:\S*/)?(run\.sh|run_\w+\.sh|data\.sh|asr_shim\.sh)\b(.*)")
PYTHON_SCRIPT = re.compile(r"(?:^|&& )python3? (local/demo\.py|run\.py)\b(.*)")


def pieces(page: Path) -> list[str]:
    """Lines of code blocks, joined where they end in a backslash, and code spans of the text."""
    text = page.read_text(encoding="utf-8")
    found = []
    for _, body in FENCE.findall(text):
        found += body.replace("\\\n", " ").split("\n")
    return found + SPAN.findall(FENCE.sub("", text))


def words(line: str) -> list[str]:
    """Words of a command, comments cut off; ``<what it is>`` stands for one word."""
    return shlex.split(re.sub(r"<[^<>]*>", "X", line), comments=True)


def commands(page: Path) -> list[tuple[str, list[str], bool]]:
    """(name, arguments, whole) of every command of ours on a page; a bare name has none.

    ``whole``: a command line to be typed, not the mention of an option.
    """
    found = []
    for piece in pieces(page):
        whole = "-m espnet_latentasr.bin." in piece
        if match := BIN.search(piece.replace("espnet_latentasr.bin.", "bin.", 1)):
            arguments = words(match[2])
            stop = next((n for n, word in enumerate(arguments) if word in ("|", "&&", ";", ">")), None)
            found.append((match[1], arguments[:stop], whole))
    return found


COMMANDS = [(page, *command) for page in PAGES for command in commands(page)]


def test_pages_are_found_and_the_reader_of_pages_reads(tmp_path):
    assert {"README.md", "DECISIONS.md", "METHOD.md", "CONTRIBUTING.md"} <= {p.name for p in PAGES}
    page = tmp_path / "x.md"
    page.write_text(
        "See `bin.doctor` and `bin.score --ref R`.\n```bash\npython -m espnet_latentasr.bin.pack \\\n"
        "    --out x --lang <the language> | cat  # all\n```\n"
    )
    assert commands(page) == [
        ("pack", ["--out", "x", "--lang", "X"], True), ("doctor", [], False),
        ("score", ["--ref", "R"], False),
    ]  # fmt: skip


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Options of a parser and of its sub-commands."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(options_of, action.choices.values()))
    return found


@pytest.mark.parametrize(
    "page, name, arguments, whole",
    COMMANDS,
    ids=[f"{page.name}-{name}-{n}" for n, (page, name, *_) in enumerate(COMMANDS)],
)
def test_commands_parse(page, name, arguments, whole, capsys):
    assert (ROOT / f"espnet_latentasr/bin/{name}.py").is_file(), f"{page}: no command bin.{name}"
    if not arguments or name in OF_ESPNET:
        return
    parser = importlib.import_module(f"espnet_latentasr.bin.{name}").get_parser()
    if not whole:
        unknown = {word for word in arguments if word.startswith("--")} - options_of(parser)
        assert not unknown, f"{page}: bin.{name} has no {unknown}"
        return
    try:
        parser.parse_args(arguments)
    except SystemExit:
        pytest.fail(f"{page}: bin.{name} {shlex.join(arguments)}: {capsys.readouterr().err}")


def test_the_parser_is_the_real_one():
    from espnet_latentasr.bin.pack import get_parser

    with pytest.raises(SystemExit):
        get_parser().parse_args(["--no_such"])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_of_scripts_exist(page):
    for piece in pieces(page):
        line = piece.partition("&& ")[2] or piece
        if not (match := SCRIPT.match(line.strip())):
            continue
        script = next(p for p in (RECIPE / match[1], RECIPE / "local" / match[1]) if p.is_file())
        text = script.read_text(encoding="utf-8")
        if "[options of run.sh]" in text:
            text += (RECIPE / "run.sh").read_text(encoding="utf-8")
        for word in words(match[2]):
            # A quoted value may hold options of another command.
            if word.startswith("--") and word != "--help" and " " not in word:
                name = word[2:].partition("=")[0].replace("-", "_")
                assert re.search(rf"^\s*(?:local )?{name}=|--{name}\b", text, re.MULTILINE), (
                    f"{page}: {match[1]} has no {word}"
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_scripts_of_the_recipe_understand_their_options(page, capsys):
    for piece in pieces(page):
        if not (match := PYTHON_SCRIPT.search(piece)):
            continue
        name, arguments = match[1], words(match[2])
        if name == "local/demo.py":
            parser = runpy.run_path(str(RECIPE / name), run_name="demo")["get_parser"]()
            try:
                parser.parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{page}: {piece}: {capsys.readouterr().err}")
        else:  # ESPnet3's own launcher
            options = {word for word in arguments if word.startswith("--")}
            assert options <= {"--stages", "--training_config", "--inference_config"}, f"{page}: {piece}"
            files = [word for word in arguments if word.endswith(".yaml")]
            assert files and all((RECIPE / word).is_file() for word in files), f"{page}: {piece}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_are_named_exist(page):
    """Configurations, sources and scripts; links to files of the repository."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page}: link to {target}"
    for piece in SPAN.findall(FENCE.sub("", text)):
        for name in re.findall(r"(?<![\w/.])[\w./]+/[\w.]+\.(?:yaml|py|sh|md|cff)\b", piece):
            places = (ROOT, RECIPE, ROOT / "espnet_latentasr", RECIPE / "conf", page.parent)
            made = name.startswith(("exp", "data/<", "dump", "out/"))
            assert made or any((place / name).exists() for place in places), f"{page}: `{name}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_names_of_python_examples_exist(page):
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("espnet_latentasr"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), f"{page}: {body}"


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == espnet_latentasr.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")[:200]


def test_pages_name_no_place_of_a_machine():
    for page in PAGES:
        found = re.findall(r"(?<![\w.])/(?:work|home|root|tmp|Users)/\S+", page.read_text("utf-8"))
        assert not found, f"{page}: {found}"
