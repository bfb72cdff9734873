#!/usr/bin/env bash
# Where the samples come from, compared on one backbone with as many passes each: PDE-Net's masks, Monte-Carlo
# dropout, a deep ensemble, flips and turns of the scene, masks and flips together.
#
#     examples/compare_uncertainty.sh FOLDER CUBE...        # e.g. compared /data/*.mat; two cubes at least
#     MINUTES=30 SCALE=4 SIZE=small SAMPLES=4 examples/compare_uncertainty.sh ...
#     LIMIT="--steps 3 --batch 1 --patch 32" examples/compare_uncertainty.sh ...    # only to see that all of it runs
#
# Every network learns from all but the lower right quarter of each cube, for MINUTES; the ensemble, SAMPLES networks,
# for MINUTES x SAMPLES. Intervals are calibrated on that quarter of the 1st, 3rd, 5th ... cube and judged on that of
# the 2nd, 4th, 6th ...: neither weights nor intervals have seen what they are judged on. Run again, it goes on where
# it stopped.
set -euo pipefail

folder=${1:?give a folder for the models, then the cubes}
shift
[ $# -ge 2 ] || { echo "Give two cubes at least: one to calibrate on, one to judge." >&2; exit 2; }
mkdir -p "$folder/calibrated"
passes=${SAMPLES:-4} minutes=${MINUTES:-6} size=${SIZE:-small}

calibrating=() judging=()
for cube in "$@"; do
    if [ ${#calibrating[@]} -gt ${#judging[@]} ]; then judging+=("$cube"); else calibrating+=("$cube"); fi
done

for network in pdenet dropout template ensemble; do
    config=$size share=$minutes
    [ $network != ensemble ] || { config+=,members=$passes share=$(awk "BEGIN { print $minutes * $passes }"); }
    read -ra limit <<<"${LIMIT:---minutes $share}"
    echo "== $network: ${limit[*]}"
    pdenet train "$@" -o "$folder/$network.safetensors" --network $network --config "$config" \
        --scale "${SCALE:-4}" "${limit[@]}" --resume
done

common=(--mixtures 0 --part lower-right-alone --samples "$passes" --level 0.9 --overwrite)

# calibrated ROW NETWORK ENSEMBLE
calibrated() {
    echo "== $1: calibrated on: ${calibrating[*]##*/}"
    pdenet calibrate "$folder/$2.safetensors" "${calibrating[@]}" -o "$folder/calibrated/$1.safetensors" \
        --ensemble "$3" "${common[@]}" >"$folder/calibrated/$1.txt"
}

# judged ENSEMBLE ROW...
judged() {
    local ensemble=$1 models=()
    shift
    for row in "$@"; do models+=(--model "$folder/calibrated/$row.safetensors"); done
    pdenet evaluate "${models[@]}" "${judging[@]}" --uncertainty --ensemble "$ensemble" --json "${common[@]}" \
        >"$folder/$ensemble.json"
}

calibrated masks pdenet masks
calibrated dropout dropout masks
calibrated ensemble ensemble masks
calibrated flips template flips
calibrated masks+flips pdenet flips
judged masks masks dropout ensemble
judged flips flips masks+flips

echo "== judged on: ${judging[*]##*/}; $passes passes each"
python3 - "$folder/masks.json" "$folder/flips.json" <<'END'
"""One table of both evaluations: the means over the cubes, the seconds of all of them."""
import json
import sys

print(f"{'':12} {'dB over':>8} {'AUSE/random':>17} {'coverage':>9} {'width':>7} {'':>8}")
print(f"{'':12} {'bicubic':>8} {'std':>8} {'interval':>8} {'of 90 %':>9} {'of 1':>7} {'seconds':>8}")
for path in sys.argv[1:]:
    with open(path) as file:
        told = json.load(file)
    for row, trust in told["uncertainty"].items():
        gain = told["mean"][row]["MPSNR"] - told["mean"]["bicubic"]["MPSNR"]
        seconds = sum(scene["systems"][row]["seconds"] for scene in told["scenes"])
        order = f"{trust['AUSE/random']:8.2f} {trust['interval AUSE/random']:8.2f}"
        held = f"{trust['interval coverage']:9.1%} {trust['interval unit width']:7.4f}"
        print(f"{row:12} {gain:+8.2f} {order} {held} {seconds:8.1f}")
END
