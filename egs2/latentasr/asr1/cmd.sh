# shellcheck shell=bash
# How jobs are started; sourced by run.sh.  train_cmd, cuda_cmd and decode_cmd are used as
#   ${decode_cmd} [--gpu N] [--mem 4G] [--num_threads N] JOB=1:4 exp/x/logdir/y.JOB.log command JOB
#
# local  on this machine (nothing else needed)
# slurm  slurm.pl, with conf/slurm.conf
# sge    queue.pl, with conf/queue.conf
# ssh    ssh.pl, with the machines listed in .queue/machines
#
# The .pl scripts are Kaldi's and ESPnet's; for these back ends they must be on PATH.

cmd_backend=${cmd_backend:-local}

case "${cmd_backend}" in
    local)
        train_cmd="python3 -m espnet_latentasr.bin.run_local"
        cuda_cmd=${train_cmd}
        decode_cmd=${train_cmd}
        _script=python3 ;;
    slurm)
        _script=slurm.pl
        train_cmd="slurm.pl"
        cuda_cmd="slurm.pl"
        decode_cmd="slurm.pl" ;;
    sge)
        _script=queue.pl
        train_cmd="queue.pl"
        cuda_cmd="queue.pl"
        decode_cmd="queue.pl" ;;
    ssh)
        _script=ssh.pl
        train_cmd="ssh.pl"
        cuda_cmd="ssh.pl"
        decode_cmd="ssh.pl" ;;
    *)
        echo "cmd.sh: cmd_backend=${cmd_backend}: local, slurm, sge or ssh expected" >&2
        exit 1 ;;
esac
if ! command -v "${_script}" >/dev/null; then
    echo "cmd.sh: cmd_backend=${cmd_backend} needs ${_script}, which is not on PATH; it is part of" \
        "Kaldi (egs/wsj/s5/utils/parallel) and of ESPnet checkouts; or use cmd_backend=local" >&2
    exit 1
fi
unset _script
export train_cmd cuda_cmd decode_cmd
