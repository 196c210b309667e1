"""Programs that systemd runs around a model: gate, wrapper, boot, jobs, an operator's command.

They import the standard library only (the gate may load the NVML binding). Gate and wrapper are started
by the start scripts of scripts/install.sh, the others with ``python -I -m``. They parse no profile:
everything they need is in the arguments of the rendered unit.
"""
