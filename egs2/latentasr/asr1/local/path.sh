# shellcheck shell=bash
# Sourced at the end of path.sh: the place for what only this recipe or this site needs, as in
#   export HF_HOME=/data/hub
