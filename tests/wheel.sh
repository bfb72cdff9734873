#!/usr/bin/env bash
# A wheel is built, installed in an empty environment and used as the README says, away from the source.
#   tests/wheel.sh FOLDER
set -euo pipefail
folder=${1:?give a folder for the environment}
source=$(cd "$(dirname "$0")/.." && pwd)
python3 -m venv "$folder/env"
"$folder/env/bin/pip" wheel -q --no-deps -w "$folder" "$source"
"$folder/env/bin/pip" install -q "$folder"/pdenet-*.whl
cd "$folder"
env/bin/pdenet models list
env/bin/pdenet upscale "$source/examples/indian_pines.hdr" -o fine.tif --bands 10:40 --samples 2 --with-uncertainty
env/bin/pdenet info fine.tif
