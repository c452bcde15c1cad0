#!/usr/bin/env bash
# Stage 1: make the Kaldi directories of a corpus below data/ and check them.
set -euo pipefail

log() { echo "$(date '+%Y-%m-%dT%H:%M:%S') (data.sh:${BASH_LINENO[0]}:${FUNCNAME[1]}) $*"; }
die() { echo "local/data.sh: $1" >&2; exit "${2:-1}"; }

help_message="Usage: local/data.sh [--corpus mini|speechocean762|paper|my|none] [--option VALUE ...]

  --corpus            mini: make the embedded mini corpus; none: data/ is there, check it only;
                      speechocean762: read by Mandarin speakers, half of them children (OpenSLR 101);
                      paper: the corpora of the paper, its activation pool and their overlap
                      my: the Kaldi directories of --src, of any place and make
  --src               local copy of the corpus, or its archive (default: as db.sh says);
                      paper: a folder with a copy of each corpus under its name
  --lang              my: language of directories without utt2lang
  --case              of speechocean762's transcripts: sentence (default), lower, published
  --revisions         paper: CORPUS=COMMIT,... of corpora that are read from the hub
  --languages         paper: named (default: those Qwen3-ASR has a name for) or known (also those that
                      other recognisers of text/languages.yaml can be told)
  --cap               paper: CORPUS=N,... most utterances of one locale in a pool
  --mixtures          paper: another file of the form of data/mixtures.yaml
  --allow_auto        true: sets may hold utterances of language 'auto' (prompt_conf: {language: auto} decodes
                      them; nothing can be trained on them)
  --sets              sets to check (default: all that are below data/); the mini corpus's sets
  --scale             size of the mini corpus, 1.0 is the whole (for tests)
                      valid_large, test_large, test_confirm, backbone_train are made when named here"

corpus=mini
sets=""
scale=1.0
nj=2
src=""
lang=""
case=sentence
revisions=""
languages=named
cap=""
mixtures=""
allow_auto=false
python=python3
while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --corpus | --sets | --scale | --nj | --python | --src | --case | --lang | \
            --revisions | --languages | --cap | --mixtures | --allow_auto)
            [ $# -ge 2 ] || die "$1 needs a value" 2
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        *) die "unknown option '$1'; --help lists them" 2 ;;
    esac
done

. ./path.sh
. ./db.sh

case "${corpus}" in
    mini)
        [ -n "${MINI}" ] || die "db.sh: MINI is empty; 'downloads' expected"
        # shellcheck disable=SC2086
        ${python} -m espnet_latentasr.bin.prepare mini --out data --downloads "${MINI}" \
            --scale "${scale}" --nj "${nj}" --sets ${sets} ;;
    speechocean762)
        src=${src:-${SPEECHOCEAN762}}
        [ -n "${src}" ] || die "db.sh: SPEECHOCEAN762 is empty; a folder, an archive or 'downloads' expected"
        [ "${src}" != downloads ] || src=""
        ${python} -m espnet_latentasr.bin.prepare speechocean762 --out data --downloads downloads \
            --case "${case}" --nj "${nj}" ${src:+--src "${src}"} ;;
    paper)
        src=${src:-${PAPER:-}}
        [ -n "${sets}" ] || die "--sets: the test sets of the paper are wanted, as in fleurs_en_us_test" 2
        [ "${languages}" != all ] || die "--languages all: the paper's draw holds languages that no recogniser
here can be told, and is none to train on; named or known expected (python -m espnet_latentasr.bin.prepare paper
--languages all makes it for other uses)" 2
        # shellcheck disable=SC2086
        ${python} -m espnet_latentasr.bin.prepare paper --out data --downloads downloads --nj "${nj}" \
            --sets ${sets} --languages "${languages}" ${src:+--src "${src}"} \
            ${mixtures:+--mixtures "${mixtures}"} ${cap:+--cap ${cap//,/ }} \
            ${revisions:+--revision ${revisions//,/ }} ;;
    my)
        for dir in ${src}; do
            ${python} -m espnet_latentasr.bin.convert_data --from kaldi --to kaldi --input "${dir}" \
                --output "data/$(basename "${dir}")" ${lang:+--lang "${lang}"}
        done ;;
    none)
        log "corpus none: data/ is taken as it is" ;;
    *)
        die "corpus '${corpus}' is not supported yet. Now there are: 'mini' (made by the recipe),
'speechocean762' (a copy or a download), 'paper' (copies, or the hub), and 'none' for your own Kaldi
directories: put data/<set>/{wav.scp,text,utt2spk,utt2lang} there and name the sets with --train_set, --valid_set and
--test_sets" ;;
esac

if [ -z "${sets}" ]; then
    for table in data/*/wav.scp; do
        [ -e "${table}" ] && sets+=" $(basename "$(dirname "${table}")")"
    done
fi
for set in ${sets}; do
    if [ "${set}" = test_human ] && [ "${corpus}" = mini ] && [ ! -e data/test_human/wav.scp ]; then
        continue # its recordings could not be had; run.sh says so and goes on without it
    fi
    mkdir -p data/log
    if ! ${python} -m espnet_latentasr.bin.validate_data_dir "data/${set}" 2>"data/log/validate.${set}.log"
    then
        cat "data/log/validate.${set}.log" >&2
        exit 1
    fi
    if ! "${allow_auto}" && grep -q ' auto$' "data/${set}/utt2lang" 2>/dev/null; then
        die "data/${set}/utt2lang: $(grep -c ' auto$' "data/${set}/utt2lang") utterances of language 'auto', so
that no prompt can name it and no training line is known: write their codes (espnet_latentasr/text/languages.yaml), or
leave them out; a test set that is only decoded with prompt_conf: {language: auto} may have them with --local_data_opts
'--allow_auto true' (its score_lang must name a code)"
    fi
done
log "Successfully finished. [elapsed=${SECONDS}s]"
