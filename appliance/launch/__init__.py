"""Short programs that systemd runs around a model: gate, wrapper, boot, jobs, an operator's command.

Standard library only (the gate may load the NVML binding), started with ``python -I -m``.
The programs parse no profile: everything they need is in the arguments of the rendered unit.
"""
