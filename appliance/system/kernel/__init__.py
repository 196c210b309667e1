"""Files of the kernel in /proc and /sys: processes, control groups, main memory."""
