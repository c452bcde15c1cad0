# shellcheck shell=bash
# How jobs are started; sourced by run.sh.  train_cmd, cuda_cmd, decode_cmd and gpu_decode_cmd are used as
#   ${decode_cmd} [--gpu N] [--num_threads N] JOB=1:4 exp/x/logdir/y.JOB.log command JOB
# and with several machines, through ESPnet's launcher, with --name X --num_nodes N as well.
#
# local  on this machine (nothing else needed); a decoding job that fails is run once more
# slurm  slurm.pl, with conf/slurm.conf
# sge    queue.pl, with conf/queue.conf
# ssh    ssh.pl, with the machines listed in .queue/machines
#
# The .pl scripts are Kaldi's and ESPnet's; for these back ends they must be on PATH.  They start a job in
# this folder, read path.sh there and pass on no environment but PATH: the folder must be at the same place
# on every machine.  Where decoding jobs were lost, the same run.sh again decodes what they left undone.

cmd_backend=${cmd_backend:-local}

case "${cmd_backend}" in
    local)
        train_cmd="python3 -m espnet_latentasr.bin.run_local"
        cuda_cmd=${train_cmd}
        decode_cmd="${train_cmd} --num_tries 2"
        gpu_decode_cmd=${decode_cmd}
        _script=python3 ;;
    slurm)
        _script=slurm.pl
        train_cmd="slurm.pl"
        cuda_cmd="slurm.pl"
        decode_cmd="slurm.pl"
        gpu_decode_cmd=${cuda_cmd} ;;
    sge)
        _script=queue.pl
        train_cmd="queue.pl"
        cuda_cmd="queue.pl"
        decode_cmd="queue.pl"
        gpu_decode_cmd=${cuda_cmd} ;;
    ssh)
        _script=ssh.pl
        train_cmd="ssh.pl"
        cuda_cmd="ssh.pl"
        decode_cmd="ssh.pl"
        gpu_decode_cmd=${cuda_cmd} ;;
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
export train_cmd cuda_cmd decode_cmd gpu_decode_cmd
