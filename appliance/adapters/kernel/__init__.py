"""What the kernel tells in /proc and /sys: processes, control groups, main memory."""
