"""The kernel's files in /proc and /sys: processes, control groups, main memory."""
