"""What systemd runs around a model: gate, boot and the wrapper that becomes the engine.

Standard library only (the gate may load the NVML binding), started with ``python -I -m``.
These programs parse no profile: everything they need is in the arguments of the rendered unit.
"""
