"""The recipe through ESPnet's asr.sh: every command form of its stages 10 to 13, in a checkout's layout.

The stand-in for asr.sh gives the commands in ESPnet's words (those of release 202511) and joins their
files as it does; what comes out must be what the recipe's own commands make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.toolkit.asr_sh import output_dir, rename_shapes, train_arguments

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs2/latentasr/asr1"

ASR_SH = r"""#!/usr/bin/env bash
set -euo pipefail
asr_task= stage= stop_stage= ngpu= nj= inference_nj= use_lm= feats_normalize= audio_format= token_type=
hugging_face_model_name_or_path= train_set= valid_set= test_sets= asr_config= inference_config=
inference_tag= inference_asr_model= python= expdir=exp dumpdir=dump
. utils/parse_options.sh
. ./path.sh
. ./cmd.sh
raw=${dumpdir}/raw exp=${expdir}/asr stats=${expdir}/asr_stats
tokens=data/token_list/hf/tokens.txt
common=(--use_preprocessor true --bpemodel "${hugging_face_model_name_or_path}"
    --token_type "${token_type}" --token_list "${tokens}"
    --non_linguistic_symbols none --cleaner none --g2p none)
${python} -m espnet2.bin.hugging_face_export_vocabulary \
    --model_name_or_path "${hugging_face_model_name_or_path}" --output "${tokens}"

# 10
mkdir -p "${stats}/logdir"
opts="--config ${asr_config} --frontend_conf fs=16k "
for part in train valid; do
    set=${train_set}
    [ "${part}" = train ] || set=${valid_set}
    utils/split_scp.pl "${raw}/${set}/wav.scp" "${stats}/logdir/${part}".{1,2}.scp
    opts+="--${part}_data_path_and_name_and_type ${raw}/${set}/wav.scp,speech,sound "
    opts+="--${part}_data_path_and_name_and_type ${raw}/${set}/text,text,text "
done
${train_cmd} JOB=1:2 "${stats}/logdir/stats.JOB.log" \
    ${python} -m espnet2.bin.${asr_task}_train --collect_stats true "${common[@]}" \
    --train_shape_file "${stats}/logdir/train.JOB.scp" \
    --valid_shape_file "${stats}/logdir/valid.JOB.scp" \
    --output_dir "${stats}/logdir/stats.JOB" ${opts}
${python} -m espnet2.bin.aggregate_stats_dirs --input_dir "${stats}/logdir/stats.1" \
    --input_dir "${stats}/logdir/stats.2" --output_dir "${stats}"
for part in train valid; do
    awk -v N="$(wc -l <"${tokens}")" '{ print $0 "," N }' "${stats}/${part}/text_shape" \
        >"${stats}/${part}/text_shape.${token_type}"
done

# 11
opts="--config ${asr_config} --frontend_conf fs=16k "
opts+="--train_data_path_and_name_and_type ${raw}/${train_set}/wav.scp,speech,sound "
opts+="--train_shape_file ${stats}/train/speech_shape --fold_length 150 "
opts+="--train_data_path_and_name_and_type ${raw}/${train_set}/text,text,text "
opts+="--train_shape_file ${stats}/train/text_shape.${token_type} "
opts+="--valid_data_path_and_name_and_type ${raw}/${valid_set}/text,text,text "
opts+="--valid_shape_file ${stats}/valid/text_shape.${token_type} "
${python} -m espnet2.bin.launch --cmd "${cuda_cmd} --name ${exp}/train.log" --log "${exp}/train.log" \
    --ngpu "${ngpu}" --num_nodes 1 --init_file_prefix "${exp}/.dist_init_" \
    --multiprocessing_distributed true -- \
    ${python} -m espnet2.bin.${asr_task}_train "${common[@]}" \
    --valid_data_path_and_name_and_type "${raw}/${valid_set}/wav.scp,speech,sound" \
    --valid_shape_file "${stats}/valid/speech_shape" --resume true --ignore_init_mismatch false \
    --fold_length 80000 --output_dir "${exp}" ${opts}

# 12 and 13
for set in ${test_sets}; do
    dir=${exp}/${inference_tag}/${set}
    mkdir -p "${dir}/logdir" "${dir}/score_wer"
    utils/split_scp.pl "${raw}/${set}/wav.scp" "${dir}/logdir/keys.1.scp" "${dir}/logdir/keys.2.scp"
    ${decode_cmd} --gpu 0 JOB=1:2 "${dir}/logdir/asr_inference.JOB.log" \
        ${python} -m espnet2.bin.${asr_task}_inference --batch_size 1 --ngpu 0 \
        --data_path_and_name_and_type "${raw}/${set}/wav.scp,speech,sound" \
        --key_file "${dir}/logdir/keys.JOB.scp" --asr_train_config "${exp}/config.yaml" \
        --asr_model_file "${exp}/${inference_asr_model}" --output_dir "${dir}/logdir/output.JOB" \
        --config "${inference_config}"
    for f in token token_int score text; do
        cat "${dir}/logdir"/output.{1,2}/1best_recog/${f} | sort -k1 >"${dir}/${f}"
    done
    paste <(${python} -m espnet2.bin.tokenize_text -f 2- --input - --output - --token_type word \
        --non_linguistic_symbols '"none"' --remove_non_linguistic_symbols true <"${dir}/text") \
        <(awk '{ print "(" $2 "-" $1 ")" }' "${raw}/${set}/utt2spk") >"${dir}/score_wer/hyp.trn"
done
"""
PARSE_OPTIONS = r"""
while [[ "${1-}" == --* ]]; do
    name=$(sed -e s/^--// -e s/-/_/g <<<"$1")
    [ -n "${!name+x}" ] || { echo "$0: invalid option $1"; exit 1; }
    printf -v "${name}" %s "$2"
    shift 2
done
"""
SPLIT_SCP = """#!/usr/bin/env python3
import sys
lines, outputs = open(sys.argv[1]).readlines(), sys.argv[2:]
size, more = divmod(len(lines), len(outputs))
for n, name in enumerate(outputs):
    begin = n * size + min(n, more)
    open(name, "w").writelines(lines[begin : begin + size + (n < more)])
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def cached(tmp_path) -> Path:
    """A recogniser's folder whose cache names the set ``train``."""
    write(tmp_path / "backbone/cache/train/audio_embeds.scp", "")
    return tmp_path / "backbone"


def test_training_arguments_are_turned_into_ours(cached):
    cmd = "--config c.yaml --bpemodel m --token_list t --cleaner none --frontend_conf fs=16k"
    cmd += " --train_data_path_and_name_and_type dump/train/wav.scp,speech,sound --fold_length 80000"
    cmd += " --train_data_path_and_name_and_type dump/train/text,text,text --fold_length 150"
    cmd += " --train_shape_file stats/train/speech_shape --train_shape_file stats/train/text_shape.bpe"
    cmd += " --output_dir exp/asr --max_epoch 3"
    flag = "--train_data_path_and_name_and_type"
    cache = cached / "cache/train"
    assert train_arguments(cmd.split(), cached) == [
        *"--config c.yaml --output_dir exp/asr --max_epoch 3 --backbone_dir".split(), str(cached),
        flag, f"{cache}/audio_embeds.scp,speech_states,kaldi_ark", flag, "dump/train/text,text,text",
        flag, f"{cache}/baseline,baseline,text_float", flag, "dump/train/utt2lang,lang,text",
        "--train_shape_file", "stats/train/speech_shape",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "option, hint",
    [
        ("--cleaner tacotron", "--cleaner none"),
        ("--normalize=global_mvn", "--feats_normalize none"),
        ("--input_size=80", "--feats_type raw"),
        ("--frontend_conf fs=8k", "--fs 16k"),
        ("--multiple_iterator true", "--num_splits_asr 1"),
    ],
)
def test_what_would_be_ignored_is_refused(cached, option, hint):
    with pytest.raises(ConfigError, match=hint):
        train_arguments(option.split(), cached)


def test_a_set_without_its_frozen_pass_is_refused(cached):
    flag = "--valid_data_path_and_name_and_type"
    with pytest.raises(ConfigError, match="no frozen pass over dump/other"):
        train_arguments([flag, "dump/other/wav.scp,speech,sound"], cached)
    with pytest.raises(ConfigError, match="one transcript"):
        train_arguments([flag, "dump/train/text_spk2,text_spk2,text"], cached)


def test_shapes_get_the_names_that_asr_sh_reads(tmp_path):
    for part in ("train", "valid"):
        for name in ("speech_states", "targets", "baseline"):
            write(tmp_path / part / f"{name}_shape", f"utt {name}\n")
        write(tmp_path / part / "batch_keys", "speech_states\ntargets\nbaseline\n")
    rename_shapes(tmp_path)
    assert (tmp_path / "valid/batch_keys").read_text() == "speech\ntext\nbaseline\n"
    assert (tmp_path / "train/speech_shape").read_text() == "utt speech_states\n"
    assert (tmp_path / "train/text_shape").read_text() == "utt targets\n"
    assert output_dir(["--collect_stats", "true", "--output_dir", "x"]) == Path("x")
    assert output_dir(["--output_dir", "x"]) is None


def test_outside_a_checkout_the_shim_says_so(tmp_path):
    folder = tmp_path / "egs2/latentasr/asr1"
    folder.mkdir(parents=True)
    shutil.copy(RECIPE / "asr_shim.sh", folder)
    done = subprocess.run(["./asr_shim.sh"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "asr.sh: not found" in done.stderr and "./run.sh" in done.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, tiny_backbone_dir, clips):
    """A checkout of ESPnet with the recipe in it, after run.sh's stages 1 to 6 on eight tones."""
    pytest.importorskip("espnet2", reason="ESPnet is not installed (tools/install.sh installs it)")
    import soundfile

    from espnet_latentasr.bin import freeze_backbone
    from espnet_latentasr.config import PromptConfig
    from espnet_latentasr.data.kaldi_dir import write_kaldi_table
    from espnet_latentasr.decode.baseline import baseline_pass
    from espnet_latentasr.decode.loading import load_recogniser

    root = tmp_path_factory.mktemp("espnet")
    recipe = root / "egs2/latentasr/asr1"
    ignored = shutil.ignore_patterns("data", "dump*", "exp*", "downloads", "mini_backbone", "results")
    shutil.copytree(RECIPE, recipe, ignore=ignored)
    (root / "espnet_latentasr").symlink_to(ROOT / "espnet_latentasr")
    (root / "tools").mkdir()
    if (ROOT / "tools/venv").exists():
        (root / "tools/venv").symlink_to((ROOT / "tools/venv").resolve())
    utils = root / "tools/kaldi/egs/wsj/s5/utils"
    write(utils / "parse_options.sh", PARSE_OPTIONS)
    write(utils / "split_scp.pl", SPLIT_SCP)
    write(root / "egs2/TEMPLATE/asr1/asr.sh", ASR_SH)
    for name in ("scripts", "pyscripts"):
        (root / "egs2/TEMPLATE/asr1" / name).mkdir()

    raw, exp = recipe / "dump/raw", recipe / "exp"
    freeze_backbone.main(["--name", str(tiny_backbone_dir), "--output_dir", str(exp / "backbone")])
    backbone = load_recogniser(exp / "backbone").recogniser.backbone
    texts = ["turn on the light", "call ann", "seven five nine zero"]
    for name, part in (("tones", clips), ("held", clips[:5]), ("asked", clips[1:6])):
        ids = [f"{name}{index}" for index in range(len(part))]
        for utt_id, clip in zip(ids, part):
            (raw / name).mkdir(parents=True, exist_ok=True)
            soundfile.write(raw / name / f"{utt_id}.wav", clip, 16000, "PCM_16")
        tables = {
            "wav.scp": {i: str(raw / name / f"{i}.wav") for i in ids},
            "text": {i: texts[n % 3] for n, i in enumerate(ids)},
            "utt2spk": {i: i for i in ids},
            "spk2utt": {i: i for i in ids},
            "utt2lang": dict.fromkeys(ids, "en"),
        }
        for table, entries in tables.items():
            write_kaldi_table(raw / name / table, entries)
        (raw / name / "feats_type").write_text("raw\n")
        if name != "asked":
            baseline_pass(backbone, PromptConfig(), raw / name, exp / "backbone/cache" / name, 4)
    (recipe / "conf/tiny.yaml").write_text(
        "base: train_latent.yaml\nmax_epoch: 2\nbatch_size: 3\nnum_workers: 0\noptim_conf: {lr: 0.01}\n"
    )
    done = subprocess.run(
        ["./asr_shim.sh", "--train_set", "tones", "--valid_set", "held", "--test_sets", "asked"]
        + ["--asr_config", "conf/tiny.yaml"]
        + ["--hugging_face_model_name_or_path", str(tiny_backbone_dir)],
        cwd=recipe,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return recipe


@pytest.mark.slow
def test_asr_sh_trains_what_run_sh_trains(checkout, monkeypatch):
    import torch

    from espnet_latentasr.bin import latentasr_train

    monkeypatch.chdir(checkout)
    shapes, data = [], []
    for part, name in (("train", "tones"), ("valid", "held")):
        for path, key, kind in (
            (f"exp/backbone/cache/{name}/audio_embeds.scp", "speech_states", "kaldi_ark"),
            (f"dump/raw/{name}/text", "text", "text"),
            (f"exp/backbone/cache/{name}/baseline", "baseline", "text_float"),
            (f"dump/raw/{name}/utt2lang", "lang", "text"),
        ):
            data += [f"--{part}_data_path_and_name_and_type", f"{path},{key},{kind}"]
        shapes.append(f"--{part}_shape_file=dump/raw/{name}/wav.scp")
    common = [*data, "--config", "conf/tiny.yaml", "--backbone_dir", "exp/backbone", "--ngpu", "0"]
    latentasr_train.main([*common, *shapes, "--collect_stats", "true", "--output_dir", "exp/stats"])
    shapes = [f"--{p}_shape_file=exp/stats/{p}/speech_states_shape" for p in ("train", "valid")]
    latentasr_train.main([*common, *shapes, "--output_dir", "exp/own"])
    for part in ("train", "valid"):
        found = (checkout / f"exp/asr_stats/{part}/speech_shape").read_text()
        assert found == (checkout / f"exp/stats/{part}/speech_states_shape").read_text()
    own = torch.load("exp/own/valid.ce.best.pth", weights_only=True)
    found = torch.load("exp/asr/valid.ce.best.pth", weights_only=True)
    assert own.keys() == found.keys() and all(torch.equal(own[key], found[key]) for key in own)


@pytest.mark.slow
def test_asr_sh_decodes_what_run_sh_decodes(checkout, monkeypatch):
    from espnet_latentasr.bin import latentasr_inference, merge_decode

    monkeypatch.chdir(checkout)
    common = ["--data_root", "dump/raw", "--test_set", "asked", "--output_dir", "exp/own_decoded"]
    common += ["--inference_config", "conf/decode_latent.yaml"]
    latentasr_inference.main(
        [*common, "--backbone_dir", "exp/backbone", "--asr_train_config", "exp/asr/config.yaml"]
        + ["--asr_model_file", "exp/asr/valid.ce.best.pth"]
    )
    merge_decode.main(common)
    own, found = (Path(f"exp/{name}/decode_latent/asked") for name in ("own_decoded", "asr"))
    for table in ("text", "token", "token_int"):
        assert (found / table).read_text() == (own / table).read_text() != ""
    words = [line.split("\t")[0] for line in open(found / "score_wer/hyp.trn")]
    assert words == [" ".join(line.split()[1:]) for line in open(own / "text")]


@pytest.mark.slow
def test_logs_and_records_are_what_espnet_and_our_reports_read(checkout):
    from espnet_latentasr.decode.merge import merge_jobs

    folder = checkout / "exp/asr/decode_latent/asked"
    for log in folder.glob("logdir/asr_inference.*.log"):
        lines = log.read_text().splitlines()
        begun = [line for line in lines if "INFO: speech length: " in line]
        assert len(begun) == sum("INFO: best hypo" in line for line in lines) > 0
    done = merge_jobs(checkout / "exp/asr", "decode_latent", checkout / "dump/raw/asked", 2)
    assert done == 5 and len((folder / "latent.jsonl").read_text().splitlines()) == 5
