#!/usr/bin/env bash
# The tests with the lowest versions of the direct dependencies that pyproject.toml allows.
#   tests/lowest.sh FOLDER [PYTEST ARGUMENTS]      makes FOLDER/env; by default the tests in which libraries matter
# torch is left at the newest allowed version, because older builds for a CPU are not on every index.
set -euo pipefail
folder=${1:?give a folder for the environment}
shift
cd "$(dirname "$0")/.."
mkdir -p "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q uv 'torch<2.14' || exit 1
"$folder/env/bin/python" - > "$folder/direct.txt" <<'P'
import re, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
print("\n".join(line for line in wanted if not re.match(r"torch\b", line)))
P
torch=$("$folder/env/bin/python" -c 'import torch; print(torch.__version__.split("+")[0])')
echo "torch==$torch" > "$folder/torch.txt"
"$folder/env/bin/uv" pip install -q --python "$folder/env/bin/python" --resolution lowest-direct \
    -r "$folder/direct.txt" --constraint "$folder/torch.txt"
"$folder/env/bin/pip" install -q --no-deps -e .
if [ $# = 0 ]; then
    set -- tests/test_{formats,envi,tiff,geotiff,mat,hdf5,zarr_and_png,info,models,metrics,sheet,shipped}.py
fi
"$folder/env/bin/python" -m pytest "$@"
