docker run -d --name vllm-server-0 --rm --gpus='"device=1"' --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 \
  -v $(pwd):/workspace -p 8010:8000 -e NCCL_SHM_DISABLE=1 -e VLLM_ATTENTION_BACKEND=FLASH_ATTN \
  vllm/vllm-openai:v0.10.2 \
  --model /workspace/vllm-models/vllm-11 --tool-call-parser hermes --enable-auto-tool-choice \
  --quantization bitsandbytes --load-format bitsandbytes --gpu-memory-utilization 0.8 --port 8000 --max_model_len 2048
