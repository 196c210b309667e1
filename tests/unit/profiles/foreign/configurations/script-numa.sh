#!/bin/sh
ulimit -l unlimited
numactl --membind=0 --physcpubind=0-15 nice -n 5 /opt/llama.cpp/bin/llama-server \
  -m /models/DeepSeek-V3-Q2_K_XL-00001-of-00005.gguf -c 16384 -ngl 0 -t 16 --numa numactl --mlock \
  -b 4096 -ub 4096 --port 8033 --host :: --cpu-range 0-15 --cpu-strict 1 --no-webui
