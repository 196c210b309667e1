"""Values of [unit] overrides that people write, for every key that is allowed."""

from collections.abc import Mapping
from typing import Final

_UNITS: Final = (
    "network-online.target",
    "nvidia-persistenced.service a@b.socket srv-m\\x2d1.mount",
)
_PATHS: Final = ("/srv/adapters", "-/home/ana/m /models", "/var/lib/huggingface/hub")
_COMMANDS: Final = (
    "/bin/true",
    "-/usr/bin/logger 'a ; b' \"$MAINPID\"",
    '-@/bin/sh sh -c "exit 1; # +/x"',
    ":/usr/local/bin/told %n",
)
_MEMORY: Final = ("64G", "80%", "infinity")
_CPUS: Final = ("0-7", "0,2,4-9", "0 2")

SAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "Unit.After": _UNITS,
    "Unit.Documentation": ("man:llama-server(1) https://example.org/a?b=c#d",),
    "Unit.OnFailure": ("mail@%n.service", "page.service"),
    "Unit.StartLimitBurst": ("9",),
    "Unit.Wants": _UNITS,
    "Service.AllowedCPUs": _CPUS,
    "Service.AllowedMemoryNodes": ("0-1",),
    "Service.BindPaths": _PATHS,
    "Service.BindReadOnlyPaths": _PATHS,
    "Service.CPUAffinity": _CPUS,
    "Service.CPUQuota": ("150%",),
    "Service.CPUSchedulingPolicy": ("batch",),
    "Service.CPUWeight": ("1", "10000"),
    "Service.DeviceAllow": ("char-drm rw", "/dev/kfd r", "/dev/dri/renderD128 rw"),
    "Service.ExecStartPost": _COMMANDS,
    "Service.ExecStop": _COMMANDS,
    "Service.ExecStopPost": _COMMANDS,
    "Service.IOSchedulingClass": ("idle",),
    "Service.IOSchedulingPriority": ("7",),
    "Service.IOWeight": ("50",),
    "Service.KillMode": ("mixed", "control-group"),
    "Service.KillSignal": ("SIGINT",),
    "Service.LimitMEMLOCK": ("16G", "infinity", "1G:2G"),
    "Service.LimitNOFILE": ("1048576", "1024:65536"),
    "Service.LimitNPROC": ("512",),
    "Service.LoadCredential": ("token:/etc/credstore/token",),
    "Service.LogRateLimitBurst": ("0", "5000"),
    "Service.LogRateLimitIntervalSec": ("0", "30s"),
    "Service.MemoryHigh": _MEMORY,
    "Service.MemoryLow": _MEMORY,
    "Service.MemoryMax": _MEMORY,
    "Service.MemoryMin": _MEMORY,
    "Service.MemorySwapMax": _MEMORY,
    "Service.NUMAMask": ("0-1",),
    "Service.NUMAPolicy": ("interleave",),
    "Service.Nice": ("5", "-5", "19"),
    "Service.OOMPolicy": ("kill",),
    "Service.OOMScoreAdjust": ("0", "100"),
    "Service.ReadWritePaths": _PATHS,
    "Service.Restart": ("no", "on-failure"),
    "Service.RestartSec": ("1", "500ms", "5min"),
    "Service.SystemCallFilter": ("@debug", "perf_event_open kcmp"),
    "Service.TasksMax": ("4096", "50%", "infinity"),
}
