#!/usr/bin/env bash
# All checks of this repository: ruff, shellcheck, pytest.  Makes the environment if it is missing.
#   tools/test.sh [arguments for pytest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/install.sh </dev/null
bin=${PWD}/tools/venv/bin
failed=()

echo "--- ruff"
"${bin}/python" -m ruff check . || failed+=(ruff)

echo "--- shellcheck"
mapfile -d '' scripts < <(find . \( -name '.?*' -o -path './tools/venv*' -o -path './egs2/*/*/data' \
    -o -path './egs2/*/*/dump*' -o -path './egs2/*/*/exp*' -o -path './egs2/*/*/downloads' \) -prune \
    -o -name '*.sh' -print0)
# Sourced files are looked for beside the script and, for local/*.sh, in the recipe above it.
if "${bin}/shellcheck" -x -P SCRIPTDIR -P SCRIPTDIR/.. .ci/run "${scripts[@]}"; then
    echo "$((${#scripts[@]} + 1)) scripts checked, all fine"
else
    failed+=(shellcheck)
fi

echo "--- pytest"
OMP_NUM_THREADS=1 "${bin}/python" -m pytest "$@" </dev/null || failed+=(pytest)

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
