#!/usr/bin/env bash
# Starts a coder model; variables may be overridden from outside.
set -euo pipefail

MODEL_DIR="${MODEL_DIR:-/opt/models}"
CTX=65536
PORT=${PORT:-8081}
export CUDA_VISIBLE_DEVICES=0,1
export GGML_CUDA_ENABLE_UNIFIED_MEMORY=0

ARGS=(
  --model "$MODEL_DIR/Devstral-Small-2-24B-Q5_K_M.gguf"
  --alias devstral,devstral-small
  --ctx-size "$CTX"
  --parallel 2        # two agents
  --n-gpu-layers 99
  --flash-attn on
)
ARGS+=(--cache-type-k q8_0 --cache-type-v q8_0)
if [[ "${JINJA:-1}" == 1 ]]; then
  ARGS+=(--jinja)
fi

cd /opt/llama.cpp
exec ./build/bin/llama-server "${ARGS[@]}" --host 0.0.0.0 --port "$PORT" --temp 0.15 --min-p 0.01
