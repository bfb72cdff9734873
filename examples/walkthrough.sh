#!/usr/bin/env bash
# A walk through pdenet on the shipped scene: what it is, what x4 takes, the finer cube, where not to trust it.
#   examples/walkthrough.sh [OUTPUT_FOLDER]      with pdenet on the PATH: . .venv/bin/activate
set -euo pipefail
case ${1:-} in -*) sed -n '2,3s/^# *//p' "$0"; exit 2 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-walkthrough}
mkdir -p "$out"

pdenet info "$here/indian_pines.hdr" --quicklook "$out/input.png" --overwrite
pdenet upscale "$here/indian_pines.hdr" -o "$out/fine.hdr" --dry-run
pdenet upscale "$here/indian_pines.hdr" -o "$out/fine.hdr" --bands 10:60 --quicklook --overwrite
pdenet uncertainty "$here/indian_pines.hdr" -o "$out" --bands 10:60 --quicklook --overwrite

# As a GeoTIFF with 32-bit numbers, quickly: one sample. Any suffix of the formats table will do.
pdenet upscale "$here/indian_pines.hdr" -o "$out/fine32.tif" --bands 10:60 --samples 1 --dtype float32 --overwrite
pdenet info "$out/fine32.tif"
