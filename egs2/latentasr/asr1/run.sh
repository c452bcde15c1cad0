#!/usr/bin/env bash
# LatentASR: from data to RESULTS.md in ESPnet's stages.  ./run.sh --help explains.
# One long file, as ESPnet's asr.sh is: the stages share their options and names and are read in order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

log() {
    local fname=${BASH_SOURCE[1]##*/}
    echo "$(date '+%Y-%m-%dT%H:%M:%S') (${fname}:${BASH_LINENO[0]}:${FUNCNAME[1]}) $*"
}
usage_error() { echo "run.sh: $*; ./run.sh --help lists all options" >&2; exit 2; }
die() { echo "run.sh: $*" >&2; exit 1; }
SECONDS=0

# options begin (each is given as --name VALUE; --name-with-dashes is the same)
# General
stage=1              # first stage to run
stop_stage=13        # last stage to run
skip_data_prep=false # leave out stages 1 to 5
skip_train=false     # leave out stages 6 to 11
skip_eval=false      # leave out stages 12 and 13
ngpu=0               # GPUs for stages 6 and 11; 0: CPU
num_nodes=1          # machines for training
nj=2                 # parallel processes of the data stages
inference_nj=2       # parallel jobs of decoding
gpu_inference=false  # decode on GPUs, one per job
dumpdir=dump         # formatted data
expdir=exp           # models and results
python=python3       # command that runs a module
resume=true          # continue training from its checkpoint
overwrite=false      # do finished work of stages 5 and 10 to 12 anew
# Data
corpus=mini                                      # mini: made here; my: --train_dir; none: data/; others
corpus_src=""                                    # local copy of the corpus; default: as db.sh says
local_data_opts=""                               # more arguments for local/data.sh
lang=en                                          # language of the test sets, for scoring
scale=1.0                                        # size of the mini corpus, for quick trials
train_set=activation_pool                        # what the activation set is drawn from
valid_set=valid                                  # chooses the checkpoint
test_sets="test_text test_voice test_human"      # below data/
train_dir=""                                     # --corpus my: Kaldi directory to train on
valid_dir=""                                     # --corpus my: Kaldi directory that chooses the checkpoint
test_dirs=""                                     # more test sets: Kaldi directories anywhere
noisy_test_sets="test_text test_voice"           # test sets also decoded with noise
mixed_test_sets=""                               # further sets, decoded as one copy at mixed SNRs
cache_test_sets=false                            # encode test sets once for all experiments (stage 6)
snrs="0 5 10 20"                                 # dB, of noisy test sets
noise_dir=""                                     # recorded noise, as MUSAN's folder; default: white noise
skip_unusable=false                              # test sets may lose bad recordings, by name and count
train_snrs=same                                  # dB, of train and valid; same: --snrs; "": no noise
num_activation=500                               # utterances the adapter is trained on
activation_seed=42                               # draw of the activation set
activation_manifest=""                           # take its first utterances instead of drawing
min_wav_duration=0.1                             # seconds; train and valid only
max_wav_duration=30                              # seconds; train and valid only
# Recogniser
backbone=""            # folder or hub id; default: that of the configuration, else local/mini_backbone
backbone_revision=""   # commit of a hub id
backbone_dtype=""      # float32 or bfloat16; default: that of the configuration, else float32
rebuild_backbone=false # train the mini task's recogniser from scratch
# Training
asr_config="conf/train_latent.yaml conf/train_latent_paper.yaml" # each is trained, decoded, scored
asr_args=""                                                      # more arguments for training
asr_tag=""                                                       # name below expdir (one config only)
seed=1                                                           # of training
# Decoding
inference_config="conf/decode_frozen.yaml conf/decode_latent.yaml conf/decode_latent_depths.yaml" # on all sets
decode_valid=true                                                  # the report chooses thresholds on it
inference_args=""                                                  # more arguments for decoding
inference_asr_model=valid.ce.best.pth                              # checkpoint to decode with
# Candidate lists and rescoring, with --rescore_config only
rescore_config=""                    # each chooses from the lists of every set: conf/decode_mbr_pll.yaml ...
nbest_config=conf/decode_frozen.yaml # where the recogniser's candidates start: frozen, or a latent rule
nbest_opts="--samples 16 --beam 4"   # arguments of bin.ar_nbest
masked_lm=""                         # folder or hub id; mini task: trained in stage 7
causal_lm=""                         # the same, stage 8
ngram_lm=""                          # ARPA file; mini task: estimated in stage 9
lm_text=""                           # texts they are trained on; default: data/<train_set>/text
# Scoring
report=true   # per experiment: RESULTS.md, report.html and report/ with tables and figures
score_opts="" # more arguments for bin.score; the mini task has --normalizer none unless given here
# options end

option_lines() { sed -n '/^# options begin/,/^# options end/p' "${BASH_SOURCE[0]##*/}" | sed '1d;$d'; }

print_help() {
    cat <<'HELP'
Usage: ./run.sh [--option VALUE ...]

  ./run.sh                                        # the mini task: training, decoding, scoring on a CPU
  ./run.sh --stage 11                             # from training on
  ./run.sh --stage 10 --asr_config conf/tuning/x.yaml     # one experiment with another configuration

Stages (ESPnet's numbers; a rerun continues where the last run stopped):
   1  data          local/data.sh: Kaldi directories below data/, checked
   2  perturbation  noisy copies: train and valid at mixed SNRs, test sets at each SNR
   3  format        16 kHz mono below dump/raw
   4  length filter train and valid only, then the draw of the activation set
   5  recogniser    build it if asked, record which one is frozen, write its token list
   6  baseline pass embeddings, cross-entropy and accuracy of the frozen recogniser
   7-9              masked, causal and n-gram language model, if a --rescore_config asks for it
  10  stats         shapes, once for all configurations
  11  training      each of asr_config
  12  decoding      each of inference_config on every test set; then each of rescore_config
  13  scoring       sclite-style results, RESULTS.md, a report per experiment

Environment: CUDA_VISIBLE_DEVICES; cmd_backend=local|slurm|sge|ssh (see cmd.sh)

Options and their defaults:
HELP
    option_lines | sed -E \
        -e 's/^# (.*)$/\n \1/' \
        -e 's/^([a-z_]+)=("[^"]*"|[^ ]*) *#? ?(.*)$/  --\1  \2\n        \3/'
}

command_line="run.sh $*"
given="" # options of the command line
option_names=$(option_lines | sed -nE 's/^([a-z_]+)=.*/\1/p')
while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) print_help; exit 0 ;;
        --*=*) usage_error "'$1': write it as two words, --option VALUE" ;;
        --*)
            name=${1#--}
            name=${name//-/_}
            grep -qxF -e "${name}" <<<"${option_names}" || usage_error "unknown option '$1'"
            [ $# -ge 2 ] || usage_error "option '$1' needs a value"
            case "${!name}" in
                true | false)
                    case "$2" in true | false) ;; *) usage_error "$1 '$2': true or false expected" ;; esac ;;
            esac
            printf -v "${name}" '%s' "$2"
            given+=" ${name} "
            shift 2 ;;
        *) break ;;
    esac
done
if [ $# -ne 0 ]; then
    log "Error: No positional arguments are required."
    usage_error "'$1' is not an option"
fi
for name in stage stop_stage ngpu num_nodes nj inference_nj num_activation activation_seed seed; do
    [[ "${!name}" =~ ^[0-9]+$ ]] || usage_error "--${name} '${!name}': a whole number expected"
done
for name in scale min_wav_duration max_wav_duration; do
    [[ "${!name}" =~ ^[0-9]+([.][0-9]*)?$ ]] || usage_error "--${name} '${!name}': a number expected"
done
for name in num_nodes nj inference_nj num_activation; do
    [ "${!name}" -ge 1 ] || usage_error "--${name} '${!name}': at least 1 expected"
done
# default NAME VALUE: a corpus's own default, unless the command line has the option
default() { [[ "${given}" == *" $1 "* ]] || printf -v "$1" '%s' "$2"; }
[ "${corpus}" = my ] || [ -z "${train_dir}${valid_dir}" ] \
    || usage_error "--train_dir and --valid_dir are for --corpus my"
case "${corpus}" in
    mini | none)
        [ -z "${corpus_src}" ] || usage_error "--corpus_src: --corpus ${corpus} has no copy to read" ;;
    *)
        if [[ ! "${corpus}" =~ ^[a-z0-9_]+$ ]] || [ ! -f "local/corpus_${corpus}.sh" ]; then
            usage_error "--corpus '${corpus}' is not supported yet. Now there are 'mini' (made by the recipe)," \
                "$(printf "'%s', " local/corpus_*.sh | sed -E 's#local/corpus_|[.]sh##g')and 'none' (data/ is" \
                "taken as it is). Your own Kaldi directories: --corpus my --train_dir, --valid_dir, --test_dirs"
        fi
        # shellcheck source=local/corpus_speechocean762.sh
        . "local/corpus_${corpus}.sh" ;;
esac
[ "${train_snrs}" != same ] || train_snrs=${snrs}
read -r -a asr_configs <<<"${asr_config}"
read -r -a inference_configs <<<"${inference_config}"
read -r -a rescore_configs <<<"${rescore_config}"
read -r -a test_dir_list <<<"${test_dirs}"
if [ -n "${asr_tag}" ] && [ ${#asr_configs[@]} -gt 1 ]; then
    usage_error "--asr_tag names one experiment, but there are ${#asr_configs[@]} in --asr_config"
fi

# runs FIRST LAST: whether any stage of a range is to be run
runs() { [ "${stage}" -le "$2" ] && [ "${stop_stage}" -ge "$1" ] && [ "${stage}" -le "${stop_stage}" ]; }
if runs 5 13; then
    [ ${#asr_configs[@]} -gt 0 ] || usage_error "--asr_config is empty"
    for name in "${asr_configs[@]}"; do
        [ -f "${name}" ] || die "--asr_config: no such file: ${name} (paths are relative to ${PWD})"
    done
fi
if runs 12 13; then
    [ ${#inference_configs[@]} -gt 0 ] || usage_error "--inference_config is empty"
    for name in "${inference_configs[@]}" "${nbest_config}"; do
        [ -f "${name}" ] || die "--inference_config: no such file: ${name} (relative to ${PWD})"
    done
fi
if runs 7 13; then
    for name in "${rescore_configs[@]}"; do
        [ -f "${name}" ] || die "--rescore_config: no such file: ${name} (relative to ${PWD})"
    done
fi

. ./path.sh
. ./cmd.sh
if [ "${num_nodes}" -gt 1 ]; then
    case "${cmd_backend}" in
        slurm | sge) ;;
        # One command is one machine there: nothing tells the processes of each other.
        *) usage_error "--num_nodes ${num_nodes} needs a cluster: cmd_backend=slurm or sge (see cmd.sh)" ;;
    esac
fi

# ---- names -------------------------------------------------------------------------------------
readonly raw="${dumpdir}/raw" backbone_dir="${expdir}/backbone" stats="${expdir}/stats"
noisy=_noisy # sets without noise are taken as they are, under their own names
[ -n "${train_snrs// /}" ] || noisy=""
readonly pool="${train_set}${noisy}" dev="${valid_set}${noisy}"
readonly act="activation_${num_activation}"
readonly -a training_sets=("${act}" "${dev}") # what stages 6 to 11 work on
current=0                                     # the stage at work, for the last words of a failure

on_exit() {
    local code=$?
    if [ "${code}" -ne 0 ] && [ "${current}" -gt 0 ]; then
        log "Stage ${current} failed (code ${code}), see above." \
            "Once that is mended, continue with: ./run.sh --stage ${current} (and your other options)"
    fi
}
trap on_exit EXIT

# begin N TEXT: true when stage N is to be run; says so, or why it is not
begin() {
    runs "$1" "$1" || return 1
    local why=""
    if [ "$1" -le 5 ]; then
        if "${skip_data_prep}"; then why="--skip_data_prep true"; fi
    elif [ "$1" -le 11 ]; then
        if "${skip_train}"; then why="--skip_train true"; fi
    elif "${skip_eval}"; then
        why="--skip_eval true"
    fi
    if [ -n "${why}" ]; then
        log "Stage $1: skipped (${why}): $2"
        return 1
    fi
    current=$1
    log "Stage $1: $2"
    # One run at a time prepares what all share; another one waits for it.
    case "$1" in
        1 | 2) share data ;;
        3 | 4) share "${dumpdir}" ;;
        5 | 6) share "${backbone_dir}" ;;
        7 | 8 | 9) share "${expdir}/lm" ;;
        10) share "${stats}" ;;
        13) share "${expdir}/log" ;;
        *) share "" ;;
    esac
}

# lock FILE WHAT WAIT: lock a file until this run and its jobs are gone, or until lock_fd is closed
lock() {
    lock_fd=""
    if ! { mkdir -p "$(dirname "$1")" && exec {lock_fd}>>"$1"; } 2>/dev/null; then
        log "$2: cannot be written: no lock is needed to read it"
        return 0
    fi
    # Called by begin, in a condition, where bash does not stop at an error by itself.
    python3 -c 'import pathlib, sys
from espnet_latentasr.fileio import lock_for_shell
fd, lock, what, pid, command, wait = sys.argv[1:]
try:
    lock_for_shell(int(fd), pathlib.Path(lock), what, int(pid), command, wait == "true")
except (ValueError, OSError) as error:
    sys.exit(f"run.sh: {error}")' "${lock_fd}" "$1" "$2" "$$" "${command_line}" "$3" || exit 1
}

shared_fd="" # of the place all runs share that this one is writing
share() { # FOLDER, "" for none
    if [ -n "${shared_fd}" ]; then exec {shared_fd}>&-; fi
    shared_fd=""
    if [ -n "$1" ]; then
        lock "$1/.lock" "$1" true
        shared_fd=${lock_fd}
    fi
}

# put FILE TEXT: a small file, whole or not at all
put() {
    echo "$2" >"$1.partial"
    mv "$1.partial" "$1"
}

# logged LOG COMMAND...: stderr goes to the log, whose end is shown on failure; stdout is a summary
logged() {
    local file=$1
    shift
    mkdir -p "$(dirname "${file}")"
    if ! "$@" 2>"${file}"; then
        echo "--- last lines of ${file}" >&2
        tail -n 20 "${file}" >&2
        exit 1
    fi
}

# config_value FILE SECTION KEY: a value of a YAML with its bases, empty if it is not there
config_value() {
    python3 -c 'import sys; from espnet_latentasr.config import load_yaml as y
print((y(sys.argv[1]).get(sys.argv[2]) or {}).get(sys.argv[3]) or "")' "$@"
}

experiment_dir() { # CONFIG
    local tag=${asr_tag}
    if [ -z "${tag}" ]; then
        tag=$(basename "$1" .yaml)
        # Other arguments are another experiment, as in ESPnet.
        [ -z "${asr_args}" ] || tag+="_$(sed -E -e 's/--//g' -e 's#[ |=/]+#_#g' <<<"${asr_args}")"
    fi
    echo "${expdir}/asr_${tag}"
}

# source_dir SET: where stage 3 finds it
source_dir() {
    local dir
    for dir in "${test_dir_list[@]}"; do
        if [ "$(basename "${dir}")" = "$1" ]; then echo "${dir}"; return; fi
    done
    echo "data/$1"
}

# Fills plain_tests, noisy_tests ("set snr" each) and all_tests; says which sets are left out and why.
list_test_sets() {
    local set snr
    plain_tests=() noisy_tests=() all_tests=() mixed_tests=()
    for set in ${test_sets}; do
        if [ "${corpus}" = mini ] && [ "${set}" = test_human ] \
            && [ ! -e data/test_human/wav.scp ] && [ ! -e "${raw}/test_human/wav.scp" ]; then
            log "test_human is left out: its recorded prompts could not be had (see stage 1)"
            continue
        fi
        plain_tests+=("${set}")
    done
    for set in "${test_dir_list[@]}"; do
        plain_tests+=("$(basename "${set}")")
    done
    set=$(printf '%s\n' "${plain_tests[@]}" | LC_ALL=C sort | uniq -d | head -n 1)
    [ -z "${set}" ] || die "two test sets are named '${set}'; rename a folder of --test_dirs"
    all_tests=("${plain_tests[@]}")
    for set in ${noisy_test_sets}; do
        if ! printf '%s\n' "${plain_tests[@]}" | grep -qxF -e "${set}"; then
            log "no noisy copies of ${set}: it is not among the test sets"
            continue
        fi
        for snr in ${snrs}; do
            noisy_tests+=("${set} ${snr}")
            all_tests+=("${set}_snr${snr}")
        done
    done
    read -r -a mixed_tests <<<"${mixed_test_sets}"
    for set in "${mixed_tests[@]}"; do all_tests+=("${set}_mixed"); done
    decoded_sets=("${all_tests[@]}")
    for set in "${pool}" "${dev}"; do
        [[ " ${all_tests[*]} " != *" ${set} "* ]] || die "'${set}' is among the test sets, but it is" \
            "trained on (--train_set) or chooses the checkpoint (--valid_set; --decode_valid decodes it)"
    done
    if "${decode_valid}"; then decoded_sets+=("${dev}"); fi
}

# ---- stage 0: what is there --------------------------------------------------------------------
mini_backbone=none # whether the doctor should look for it
if [ -n "${backbone}" ]; then
    chosen_backbone="${backbone}"
elif "${rebuild_backbone}"; then
    chosen_backbone="${expdir}/mini_backbone_rebuilt"
else
    chosen_backbone=""
    if runs 5 5 && [ -z "$(config_value "${asr_configs[0]}" backbone_conf name)" ]; then
        [ "${corpus}" = mini ] || die "which recogniser? give --backbone DIR or a hub id with" \
            "--backbone_revision (local/mini_backbone only knows the mini task), or name it in the" \
            "configuration's backbone_conf"
        chosen_backbone=local/mini_backbone
        mini_backbone=local/mini_backbone
    fi
fi
if ! python3 -m espnet_latentasr.bin.doctor --brief true --mini_backbone "${mini_backbone}"; then
    if runs 1 5 && [ "${corpus}" = mini ] && ! "${skip_data_prep}"; then
        die "something that the mini task needs is missing, see above"
    fi
fi
if [ "${stage}" -gt "${stop_stage}" ]; then
    log "nothing to do: --stage ${stage} is behind --stop_stage ${stop_stage}"
fi

# An experiment is one run's from its first stage to its last: another run is refused at once.
if runs 11 13 && ! { "${skip_train}" && "${skip_eval}"; }; then
    while read -r dir; do
        lock "${expdir}/.$(basename "${dir}").run.lock" "${dir}" false
    done < <(for config in "${asr_configs[@]}"; do experiment_dir "${config}"; done | sort -u)
fi

# ---- data --------------------------------------------------------------------------------------
if begin 1 "data: ${corpus} -> data/"; then
    sets="${train_set} ${valid_set} ${test_sets} ${mixed_test_sets}"
    if "${rebuild_backbone}" && [ "${corpus}" = mini ]; then sets+=" backbone_train"; fi
    # shellcheck disable=SC2086
    local/data.sh --corpus "${corpus}" --sets "${sets}" --scale "${scale}" --nj "${nj}" \
        --python "${python}" ${corpus_src:+--src "${corpus_src}"} ${local_data_opts}
    for dir in "${test_dir_list[@]}"; do
        logged "${dumpdir}/log/validate.$(basename "${dir}").log" \
            ${python} -m espnet_latentasr.bin.validate_data_dir "${dir}"
    done
fi

if runs 2 13; then
    list_test_sets
fi

# mixed_copy SET SUFFIX SNRS: each utterance clean or at one of the SNRs
mixed_copy() {
    logged "${dumpdir}/log/add_noise.$1_$2.log" \
        ${python} -m espnet_latentasr.bin.add_noise --data_dir "data/$1" \
        --output_dir "data/$1_$2" --mixed_snr "clean $3" --nj "${nj}" "${noise_opts[@]}"
}

noise_opts=()
[ -z "${noise_dir}" ] || noise_opts+=(--noise_dir "${noise_dir}")
noise_plan="train and valid at ${train_snrs:-no} dB, ${noisy_test_sets:-no test set} at ${snrs:-no} dB"
if begin 2 "additive noise: ${noise_plan}"; then
    if [ -n "${noisy}" ]; then
        mixed_copy "${train_set}" noisy "${train_snrs}"
        mixed_copy "${valid_set}" noisy "${train_snrs}"
    fi
    for set in "${mixed_tests[@]}"; do mixed_copy "${set}" mixed "${snrs}"; done
    for pair in "${noisy_tests[@]}"; do
        read -r set snr <<<"${pair}"
        logged "${dumpdir}/log/add_noise.${set}_snr${snr}.log" \
            ${python} -m espnet_latentasr.bin.add_noise --data_dir "$(source_dir "${set}")" \
            --output_dir "data/${set}_snr${snr}" --snr "${snr}" --nj "${nj}" "${noise_opts[@]}" \
            --skip_unusable "${skip_unusable}"
    done
fi

if begin 3 "format: 16 kHz mono, data/ -> ${raw}"; then
    limits=(--min_wav_duration "${min_wav_duration}" --max_wav_duration "${max_wav_duration}")
    for kind in train valid; do
        set=${pool}
        [ "${kind}" = train ] || set=${dev}
        logged "${dumpdir}/log/format_wav.${set}.log" \
            ${python} -m espnet_latentasr.bin.format_wav --data_dir "data/${set}" \
            --output_dir "${raw}/org/${set}" --kind "${kind}" "${limits[@]}" --nj "${nj}"
    done
    for set in "${all_tests[@]}"; do
        logged "${dumpdir}/log/format_wav.${set}.log" \
            ${python} -m espnet_latentasr.bin.format_wav --data_dir "$(source_dir "${set}")" \
            --output_dir "${raw}/${set}" --kind test --nj "${nj}" --skip_unusable "${skip_unusable}"
    done
fi

if begin 4 "length filter of train and valid, then ${num_activation} utterances for activation"; then
    for kind in train valid; do
        set=${pool}
        [ "${kind}" = train ] || set=${dev}
        logged "${dumpdir}/log/filter_length.${set}.log" \
            ${python} -m espnet_latentasr.bin.filter_length --data_dir "${raw}/org/${set}" \
            --output_dir "${raw}/${set}" --kind "${kind}" \
            --min_wav_duration "${min_wav_duration}" --max_wav_duration "${max_wav_duration}"
    done
    logged "${dumpdir}/log/sample_activation.log" \
        ${python} -m espnet_latentasr.bin.sample_activation --data_dir "${raw}/${pool}" \
        --output_dir "${raw}/${act}" --num "${num_activation}" --seed "${activation_seed}" \
        ${activation_manifest:+--manifest "${activation_manifest}"}
fi

if begin 5 "recogniser: ${chosen_backbone:-that of ${asr_configs[0]}} -> ${backbone_dir}"; then
    if "${rebuild_backbone}" && [ -z "${backbone}" ]; then
        if [ -e "${chosen_backbone}/training.json" ] && ! "${overwrite}"; then
            log "${chosen_backbone} is trained, left as it is (--overwrite true trains it anew)"
        else
            log "training the recogniser from scratch, log: ${chosen_backbone}.log"
            ${train_cmd} --num_threads "${nj}" "${chosen_backbone}.log" \
                ${python} -m espnet_latentasr.bin.train_mini_backbone \
                --data_dir data/backbone_train --output_dir "${chosen_backbone}"
        fi
    fi
    opts=()
    if [ -n "${chosen_backbone}" ]; then
        opts+=(--name "${chosen_backbone}")
    else
        opts+=(--config "${asr_configs[0]}")
    fi
    [ -z "${backbone_revision}" ] || opts+=(--revision "${backbone_revision}")
    [ -z "${backbone_dtype}" ] || opts+=(--dtype "${backbone_dtype}")
    logged "${backbone_dir}/logdir/freeze_backbone.log" \
        ${python} -m espnet_latentasr.bin.freeze_backbone "${opts[@]}" --output_dir "${backbone_dir}"
fi

# ---- training ----------------------------------------------------------------------------------
cached_sets=("${training_sets[@]}")
if "${cache_test_sets}" && runs 2 13; then cached_sets+=("${all_tests[@]}"); fi
if begin 6 "baseline pass of the frozen recogniser over ${cached_sets[*]}"; then
    for set in "${cached_sets[@]}"; do
        ${cuda_cmd} --gpu "$((ngpu > 0))" "${backbone_dir}/logdir/baseline_pass.${set}.log" \
            ${python} -m espnet_latentasr.bin.baseline_pass --backbone_dir "${backbone_dir}" \
            --config "${asr_configs[0]}" --data_dir "${raw}/${set}" \
            --output_dir "${backbone_dir}/cache/${set}" --ngpu "$((ngpu > 0))"
        log "${backbone_dir}/cache/${set}: complete"
    done
fi

# needed_scores: the language-model terms that any of rescore_config gives a weight
needed_scores() {
    [ ${#rescore_configs[@]} -gt 0 ] || return 0
    python3 -c 'import sys
from espnet_latentasr.rescoring.config import LM_TERMS, load_rescore_config, needed_terms
needed = set().union(*(needed_terms(load_rescore_config(path)) for path in sys.argv[1:]))
print(*(term for term in LM_TERMS if term in needed))' "${rescore_configs[@]}"
}
scores=$(needed_scores)

# scorer NUMBER TERM KIND GIVEN PLACE: make a language model of the mini task unless one is given
scorer() {
    begin "$1" "$3 language model" || return 0
    if [[ " ${scores} " != *" $2 "* ]]; then
        log "nothing to do: no rescoring configuration asks for '$2'"
    elif [ -n "$4" ]; then
        log "given: $4"
    elif [ -e "$5" ] && ! "${overwrite}"; then
        log "$5 is there, left as it is (--overwrite true makes it anew)"
    else
        [ "${corpus}" = mini ] || [ -n "${lm_text}" ] || die "which $3 language model? give --masked_lm," \
            "--causal_lm or --ngram_lm, or --lm_text with sentences to train small ones on"
        logged "${expdir}/lm/log/$3.log" ${python} -m espnet_latentasr.bin.train_small_lm --kind "$3" \
            --text "${lm_text:-data/${train_set}/text}" --out "$5" --num_threads "${nj}"
    fi
}
scorer 7 pll masked "${masked_lm}" "${expdir}/lm/masked"
scorer 8 ll causal "${causal_lm}" "${expdir}/lm/causal"
scorer 9 ngram ngram "${ngram_lm}" "${expdir}/lm/ngram.arpa"

# The data arguments of stages 10 and 11
task_opts=()
# --backbone takes the place of the name in the configuration
if [ -d "${backbone}" ]; then
    task_opts+=(--backbone_conf "name=$(realpath "${backbone}")")
elif [ -n "${backbone}" ]; then
    task_opts+=(--backbone_conf "name=${backbone}")
fi
[ -z "${backbone_revision}" ] || task_opts+=(--backbone_conf "revision=${backbone_revision}")
for part in train valid; do
    set=${act}
    [ "${part}" = train ] || set=${dev}
    flag="--${part}_data_path_and_name_and_type"
    cache="${backbone_dir}/cache/${set}"
    task_opts+=(
        "${flag}" "${cache}/audio_embeds.scp,speech_states,kaldi_ark"
        "${flag}" "${raw}/${set}/text,text,text"
        "${flag}" "${cache}/baseline,baseline,text_float"
        "${flag}" "${raw}/${set}/utt2lang,lang,text"
    )
done

# data_key: changes when what a model was trained on does
data_key() {
    local set files=()
    for set in "${training_sets[@]}"; do
        files+=("${raw}/${set}"/{utt2num_samples,text} "${backbone_dir}/cache/${set}/baseline")
    done
    # What is not there counts as empty.
    {
        grep '"fingerprint"' "${backbone_dir}/backbone.json" || true
        cat "${files[@]}" || true
    } 2>/dev/null | cksum | tr ' ' '-'
}

if begin 10 "stats, once for all configurations: ${stats}"; then
    if [ "$(cat "${stats}/.finished" 2>/dev/null)" = "$(data_key)" ] && ! "${overwrite}"; then
        log "${stats} is complete, left as it is"
    else
        rm -f "${stats}/.finished"
        ${train_cmd} "${stats}/logdir/collect_stats.log" \
            ${python} -m espnet_latentasr.bin.latentasr_train --collect_stats true \
            --use_preprocessor true --config "${asr_configs[0]}" --backbone_dir "${backbone_dir}" \
            "${task_opts[@]}" \
            --train_shape_file "${raw}/${act}/utt2num_samples" \
            --valid_shape_file "${raw}/${dev}/utt2num_samples" \
            --output_dir "${stats}" --ngpu 0
        put "${stats}/.finished" "$(data_key)"
    fi
fi

# keep_log LOG: give the log of an earlier run the next free number, x.1.log being the oldest
keep_log() {
    local n=1
    [ -e "$1" ] || return 0
    while [ -e "${1%.log}.${n}.log" ]; do n=$((n + 1)); done
    mv "$1" "${1%.log}.${n}.log"
}

# train CONFIG: one experiment; a finished one is left, an unfinished one continued
train() {
    local config=$1 asr_exp settings here opts=()
    asr_exp=$(experiment_dir "${config}")
    settings=$(python3 -c 'import sys; from espnet_latentasr.config import config_hash, load_yaml
print(config_hash(load_yaml(sys.argv[1])))' "${config}")
    settings+="/${seed}/${asr_args// /_}"
    here="$(data_key) ${settings}"
    if "${overwrite}"; then rm -rf "${asr_exp:?}"; fi
    if [ "$(cat "${asr_exp}/.finished" 2>/dev/null)" = "${here}" ]; then
        log "${asr_exp} is trained, left as it is (--overwrite true trains it anew)"
        return
    fi
    [ "$(cat "${stats}/.finished" 2>/dev/null)" = "$(data_key)" ] \
        || die "${stats}: unfinished, or of other data than these; run stage 10 first"
    if [ -e "${asr_exp}/checkpoint.pth" ] && "${resume}"; then
        if [ "$(cut -d' ' -f1 "${asr_exp}/.started" 2>/dev/null)" != "$(data_key)" ]; then
            die "${asr_exp}: begun with another recogniser, training set or valid set than now;" \
                "give --asr_tag NAME, or --overwrite true to train it anew"
        fi
        [ "$(cat "${asr_exp}/.started")" = "${here}" ] \
            || log "WARNING: the settings of ${asr_exp} have changed since it was begun"
        log "${asr_exp}: continuing from its checkpoint"
    fi
    mkdir -p "${asr_exp}"
    rm -f "${asr_exp}/.finished"
    put "${asr_exp}/.started" "${here}"
    log "training ${asr_exp}, log: ${asr_exp}/train.log"
    # shellcheck disable=SC2206
    opts=(
        ${python} -m espnet_latentasr.bin.latentasr_train
        --use_preprocessor true --config "${config}" --backbone_dir "${backbone_dir}"
        "${task_opts[@]}"
        --train_shape_file "${stats}/train/speech_states_shape"
        --valid_shape_file "${stats}/valid/speech_states_shape"
        --output_dir "${asr_exp}" --resume "${resume}" --seed "${seed}" --ngpu "${ngpu}"
    )
    if [ "${num_nodes}" -gt 1 ]; then
        # shellcheck disable=SC2086
        ${python} -m espnet2.bin.launch --cmd "${cuda_cmd} --name $(basename "${asr_exp}")" \
            --log "${asr_exp}/train.log" --ngpu "${ngpu}" --num_nodes "${num_nodes}" \
            --init_file_prefix "${asr_exp}/.dist_init_" --multiprocessing_distributed true -- \
            "${opts[@]}" ${asr_args}
    else
        keep_log "${asr_exp}/train.log"
        if [ "${ngpu}" -gt 1 ]; then opts+=(--multiprocessing_distributed true); fi
        # shellcheck disable=SC2086
        ${cuda_cmd} --gpu "${ngpu}" "${asr_exp}/train.log" "${opts[@]}" ${asr_args}
    fi
    put "${asr_exp}/.finished" "${here}"
}

if begin 11 "training: ${asr_config}"; then
    for config in "${asr_configs[@]}"; do
        train "${config}"
    done
fi

# ---- evaluation --------------------------------------------------------------------------------
# rescore EXPERIMENT SET: candidate lists, language-model scores, one choice per rescoring configuration
rescore() {
    local lists
    lists="$1/nbest_$(basename "${nbest_config}" .yaml)/$2"
    # shellcheck disable=SC2086
    "${decode[@]}" JOB=1:"${inference_nj}" "${lists}/logdir/ar_nbest.JOB.log" \
        ${python} -m espnet_latentasr.bin.ar_nbest --ngpu "${decode_ngpu}" --backbone_dir "${backbone_dir}" \
        --asr_train_config "$1/config.yaml" --asr_model_file "$1/${inference_asr_model}" \
        --inference_config "${nbest_config}" --data_dir "${raw}/$2" "${cached[@]}" \
        --out "${lists}/logdir/nbest.JOB.jsonl" --num_jobs "${inference_nj}" --job JOB ${nbest_opts}
    local shares=() n
    for n in $(seq "${inference_nj}"); do shares+=("${lists}/logdir/nbest.${n}.jsonl"); done
    logged "${lists}/logdir/merge.log" \
        ${python} -m espnet_latentasr.bin.ar_nbest --merge "${shares[@]}" --out "${lists}/nbest.jsonl"
    local term model from="${lists}/nbest.jsonl" given opts
    for term in ${scores}; do
        opts=()
        case "${term}" in
            pll) given=${masked_lm} model=${given:-${expdir}/lm/masked} ;;
            ll) given=${causal_lm} model=${given:-${expdir}/lm/causal} ;;
            ngram) given=${ngram_lm} model=${given:-${expdir}/lm/ngram.arpa} ;;
            ilm) model=${backbone_dir} opts=(--data_dir "${raw}/$2") ;;
        esac
        case "${model}" in *@*) opts+=(--revision "${model##*@}") model=${model%@*} ;; esac
        logged "${lists}/logdir/score.${term}.log" ${python} -m espnet_latentasr.bin.score_nbest \
            --nbest "${from}" --scorer "${term}" --model "${model}" --cache_dir "${expdir}/lm/cache" \
            --out "${lists}/nbest.${term}.jsonl" --ngpu "${decode_ngpu}" "${opts[@]}"
        from="${lists}/nbest.${term}.jsonl"
    done
    local name
    for name in "${rescore_configs[@]}"; do
        logged "${lists}/logdir/$(basename "${name}" .yaml).log" \
            ${python} -m espnet_latentasr.bin.rescore --nbest "${from}" --config "${name}" \
            --out "$1/$(basename "${name}" .yaml)/$2"
    done
}

if begin 12 "decoding: ${inference_config} on ${decoded_sets[*]}"; then
    opts=() cached=()
    for config in "${inference_configs[@]}"; do opts+=(--inference_config "${config}"); done
    for set in "${decoded_sets[@]}"; do opts+=(--test_set "${set}"); done
    if "${cache_test_sets}"; then cached=(--cache_root "${backbone_dir}/cache"); fi
    # shellcheck disable=SC2206
    decode=(${decode_cmd})
    decode_ngpu=0
    if "${gpu_inference}"; then
        # shellcheck disable=SC2206
        decode=(${gpu_decode_cmd} --gpu 1)
        decode_ngpu=1
    fi
    for config in "${asr_configs[@]}"; do
        asr_exp=$(experiment_dir "${config}")
        [ -e "${asr_exp}/${inference_asr_model}" ] \
            || die "${asr_exp}/${inference_asr_model}: no such model; stage 11 makes it, and" \
                "--inference_asr_model names another"
        if "${overwrite}"; then
            for name in "${inference_configs[@]}"; do rm -rf "${asr_exp:?}/$(basename "${name}" .yaml)"; done
        fi
        log "decoding with ${asr_exp}, logs: ${asr_exp}/logdir/asr_inference.*.log"
        # shellcheck disable=SC2086
        "${decode[@]}" JOB=1:"${inference_nj}" "${asr_exp}/logdir/asr_inference.JOB.log" \
            ${python} -m espnet_latentasr.bin.latentasr_inference --ngpu "${decode_ngpu}" \
            --backbone_dir "${backbone_dir}" --asr_train_config "${asr_exp}/config.yaml" \
            --asr_model_file "${asr_exp}/${inference_asr_model}" "${opts[@]}" --data_root "${raw}" \
            --output_dir "${asr_exp}" --num_jobs "${inference_nj}" --job JOB "${cached[@]}" \
            ${inference_args}
        logged "${asr_exp}/logdir/merge_decode.log" \
            ${python} -m espnet_latentasr.bin.merge_decode --output_dir "${asr_exp}" \
            --data_root "${raw}" "${opts[@]}" --num_jobs "${inference_nj}"
        if [ ${#rescore_configs[@]} -gt 0 ]; then
            log "candidate lists (${nbest_opts}) and rescoring: ${rescore_config}"
            for set in "${all_tests[@]}"; do rescore "${asr_exp}" "${set}"; done
        fi
    done
fi

results=RESULTS.md # of the default place, so that a trial elsewhere does not replace it
[ "${expdir}" = exp ] || results="${expdir}/RESULTS.md"
if begin 13 "scoring, then ${results}"; then
    read -r -a score_options <<<"${score_opts}"
    if [ "${corpus}" = mini ] && [[ " ${score_opts} " != *" --normalizer "* ]]; then
        score_options+=(--normalizer none)
    fi
    # score_lang SET: the language its own folder names, else --lang
    score_lang() {
        local name=${1%_snr*}
        cat "data/${name%_mixed}/score_lang" 2>/dev/null || echo "${lang}"
    }
    # All scores in one process: starting Python anew would take longer than scoring.
    mkdir -p "${expdir}/log"
    jobs="${expdir}/log/score_jobs.tsv"
    : >"${jobs}"
    for config in "${asr_configs[@]}"; do
        for name in "${inference_configs[@]}" "${rescore_configs[@]}"; do
            for set in "${decoded_sets[@]}"; do
                dir="$(experiment_dir "${config}")/$(basename "${name}" .yaml)/${set}"
                [ -e "${dir}/text" ] || [ "${set}" != "${dev}" ] || continue # lists are of test sets
                rm -rf "${dir:?}"/score_{wer,cer,mer} # of other units or another normaliser
                units="wer cer"
                spoken=$(score_lang "${set}")
                [ "${spoken}" != zh-en ] || units="mer cer"
                # shellcheck disable=SC2086
                printf '%s\t' --ref "${raw}/${set}/text" --hyp "${dir}/text" \
                    --utt2spk "${raw}/${set}/utt2spk" --lang "${spoken}" --unit ${units} \
                    "${score_options[@]}" >>"${jobs}"
                printf '%s\t%s\n' --output_dir "${dir}" >>"${jobs}"
            done
        done
    done
    logged "${expdir}/log/score.log" ${python} -c 'import sys
from espnet_latentasr.bin import score, _common
run_all = lambda: [score.main(row.rstrip("\n").split("\t")) for row in open(sys.argv[1])]
_common.run_main(run_all)' "${jobs}"
    log "$(wc -l <"${jobs}") decoded sets scored, log: ${expdir}/log/score.log"
    logged "${expdir}/log/make_results.log" \
        ${python} -m espnet_latentasr.bin.make_results --expdir "${expdir}" --output "${results}" \
        --dev "${dev}" --families "${expdir}" --oracle_gap "${expdir}/oracle_gap" \
        --sequence "${expdir}/sequence" --data_root "${raw}"
    log "results: ${PWD}/${results}"
    if "${report}"; then
        for config in "${asr_configs[@]}"; do
            asr_exp=$(experiment_dir "${config}")
            logged "${asr_exp}/logdir/report.log" ${python} -m espnet_latentasr.bin.report \
                --exp "${asr_exp}" --out "${asr_exp}" --data_root "${raw}" --dev "${dev}"
            log "report: ${PWD}/${asr_exp}/report.html"
        done
    fi
fi

current=0
log "Successfully finished. [elapsed=${SECONDS}s]"
