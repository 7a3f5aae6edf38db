#!/usr/bin/env bash
# Measures one CUDA device with the Python that is there (PYTHON, else python3), without network; see benchmarks/gpu.py.
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec timeout 360 "${PYTHON:-python3}" benchmarks/gpu.py "$@"
