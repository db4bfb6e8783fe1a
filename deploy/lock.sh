#!/usr/bin/env bash
# Remakes requirements.lock: everything in pyproject.toml resolved into a new environment, then frozen.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$folder/bin/pip" install -q $(grep -oE '"(torch|torchvision)==[0-9.]+"' pyproject.toml | tr -d '"')
"$folder/bin/python" - <<'PYTHON' >"$folder/wanted"
import tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print("\n".join(line for lines in extras.values() for line in lines if not line.startswith("loopline[")))
PYTHON
"$folder/bin/pip" install -q -r "$folder/wanted"
{
    echo '# Exact versions of everything, made by `make lock` from pyproject.toml. Set-up installs torch and torchvision first.'
    "$folder/bin/pip" freeze --exclude-editable | sed -E 's/^(nvidia-[^=]+|cuda-[^=]+|triton)(==.*)$/\1\2 ; platform_machine == "x86_64"/'
} >requirements.lock
