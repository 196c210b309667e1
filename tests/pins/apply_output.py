"""Pins of `appliance apply`: every file below the unit directory and the applied directory.

A folder of ``boxes`` is a box: its profiles, and ``appliance.settings`` if it has settings of its
own. ``/box`` in a text is the directory that the box is made in.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.fakes.certificates import self_signed
from tests.fakes.model_files import LLAMA, llama_tensors, write_gguf, write_safetensors
from tests.pins.appliance_code import (
    SHARED_THREADS,
    FakeSystemctl,
    Output,
    add_key,
    apply,
    unit_of,
)
from tests.pins.normalisation import RAM_DISK, ROOT, normal, told_by, with_named_digest

BOXES: Final = Path(__file__).parent / "boxes"
SHIPPED: Final = Path(__file__).parents[2] / "profiles"
_PLACES: Final = {
    "profiles_dir": "profiles",
    "unit_dir": "units",
    "polkit_rule": "rules/50-appliance.rules",
    "applied_dir": "applied",
    "state_dir": "state",
}
MANIFEST: Final = "applied/manifest.json"
_BASE_NAME: Final = "plain"
_BASE: Final = f"{_BASE_NAME}.txt"
"""Pin that the pins of all other profiles are stored as differences to."""
_OF_THIS_MACHINE: Final = "this machine's"
"""Comment in a profile whose threads and fingerprint differ between machines."""
_FINGERPRINT: Final = re.compile(r'"fingerprint": "([0-9a-f]+)"')
_WRITTEN: Final = ("units", "rules", "applied")


@dataclass(frozen=True, slots=True)
class Box:
    """Directories of a machine below `root`."""

    root: Path
    manager: FakeSystemctl = field(default_factory=FakeSystemctl)

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.root / "appliance.toml"

    def configure(self, text: str) -> None:
        """Write the settings file: the box's own places, then `text`."""
        places = {key: self.root / place for key, place in _PLACES.items()}
        lines = [f'{key} = "{path}"' for key, path in places.items() if f"{key} =" not in text]
        self.settings.write_text("\n".join([*lines, text.replace(ROOT, str(self.root))]))

    def profile(self, name: str, text: str) -> None:
        """Write a profile file."""
        (self.root / "profiles" / f"{name}.toml").write_text(text.replace(ROOT, str(self.root)))

    def apply(self, *words: str) -> Output:
        """Run one apply and return its normalised output."""
        done = apply(self.settings, self.manager, *words)
        return Output(status=done.status, out=self.normal(done.out), err=self.normal(done.err))

    def normal(self, text: str) -> str:
        """Return `text` without what differs between machines."""
        return normal(text, self.root, self._words())

    def _words(self) -> Mapping[str, str]:
        """Words for digests that depend on the box's directory, and for this machine's threads."""
        words: dict[str, str] = {}
        manifest = self.root / MANIFEST
        entries = _entries(manifest)
        for file in (self.root / "profiles").iterdir():
            content = file.read_bytes()
            text = content.decode()
            own = _OF_THIS_MACHINE in text
            if str(self.root) in text:
                words[sha256(content).hexdigest()] = f"<sha256 of {file.name}>"
            fingerprint = _FINGERPRINT.search(json.dumps(entries.get(file.stem, {})))
            if fingerprint and (own or str(self.root) in text):
                words[fingerprint[1]] = f"<fingerprint of {file.stem}>"
            if own:
                words[f"--threads {SHARED_THREADS}"] = "--threads <of this machine>"
                words[f'"--threads", "{SHARED_THREADS}"'] = '"--threads", "<of this machine>"'
        return words

    def files(self) -> dict[str, str]:
        """Return every file that apply wrote, but for its lock, by path and mode."""
        found = {}
        for place in _WRITTEN:
            for path in sorted((self.root / place).rglob("*")):
                if path.is_file() and path != self.root / "applied" / "lock":
                    mode = path.stat().st_mode & 0o7777
                    text = with_named_digest(path.read_text(encoding="utf-8"))
                    found[f"{path.relative_to(self.root)} {mode:04o}"] = self.normal(text)
        return found


def _entries(manifest: Path) -> Mapping[str, object]:
    """Return the entries of a manifest; none if it is damaged."""
    try:
        found = json.loads(manifest.read_text())["profiles"]
    except (OSError, ValueError):
        return {}
    assert isinstance(found, dict)
    return found


@contextmanager
def new_box() -> Iterator[Box]:
    """Make an empty box; remove it at the end."""
    umask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="pins-") as folder:
            box = Box(Path(folder))
            box.root.chmod(0o755)
            for place in ("profiles", "units", "rules", "state", "models"):
                (box.root / place).mkdir()
            box.configure("")
            yield box
    finally:
        os.umask(umask)


def make() -> dict[str, str]:
    """Make every pin of apply, by file."""
    found: dict[str, str] = {}
    base: dict[str, str] = {}
    for folder in (BOXES / "base", SHIPPED, *sorted(BOXES.iterdir())):
        name = "shipped" if folder == SHIPPED else folder.name
        if f"{name}/box.txt" in found:
            continue
        with new_box() as box:
            _fill(box, folder)
            pins, full = _pins(box, base)
        base = base or full
        found |= {f"{name}/{file}": text for file, text in pins.items()}
    return found


def shortened(name: str, text: str, base: Mapping[str, str]) -> str:
    """Return `text` as the differences to the file of the base box, which is stored in full.

    A profile is compared with the base's only profile, as if that had the same name.
    """
    if not base:
        return text
    is_profile = name not in base
    like = base[_BASE].replace(_BASE_NAME, Path(name).stem) if is_profile else base[name]
    return told_by(like, text)


def _fill(box: Box, folder: Path) -> None:
    for file in sorted(folder.glob("*.toml")):
        box.profile(file.stem, file.read_text(encoding="utf-8"))
    settings = folder / "appliance.settings"
    if settings.exists():
        text = settings.read_text(encoding="utf-8")
        box.configure(text)
        if "with a key" in text:
            add_key(box.root / "state")
        if "systemd 254" in text:
            box.manager.systemd = 254
        if "with a certificate" in text:
            self_signed(box.root)
    if folder.name == "models":
        _write_models(box.root / "models")


def _write_models(folder: Path) -> None:
    write_gguf(folder / "llama.gguf", LLAMA, llama_tensors())
    write_gguf(folder / "experts.gguf", LLAMA, llama_tensors(experts=8))
    write_gguf(folder / "mmproj.gguf", {"general.architecture": "clip"}, {})
    write_gguf(folder / "cut.gguf", LLAMA, llama_tensors(), cut=1)
    (folder / "link.gguf").symlink_to("llama.gguf")
    (folder / "chat.jinja").write_text("{{ messages }}")
    (folder / "st").mkdir()
    write_safetensors(folder / "st" / "model.safetensors", {"a": 1 << 24, "b": 1 << 22})
    sizes = {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    (folder / "st" / "config.json").write_text(json.dumps(sizes))


def _pins(box: Box, base: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return a file for each profile and one for everything else, shortened and in full.

    A profile's file has its unit and its entry in the manifest.
    """
    done = box.apply()
    rest = f"exit status {done.status}\n{done.out}{done.err}"
    full: dict[str, str] = {}
    seen: dict[str, str] = {}
    names = {unit_of(f.stem): f.stem for f in (box.root / "profiles").iterdir()}
    for file, text in box.files().items():
        path, _, _mode = file.partition(" ")
        name = names.get(path.removeprefix("units/"))
        if text in seen:
            rest += f"==== {file}: as {seen[text]}\n"
        elif name is not None:
            rest += f"==== {file}: {name}.txt\n"
            full[f"{name}.txt"] = text
        else:
            shown = text
            for profile in names.values() if path == MANIFEST else ():
                entry = _entry(text, profile)
                full[f"{profile}.txt"] += f"==== {path}\n{entry}"
                shown = shown.replace(entry, f"  … {profile}.txt\n")
            rest += f"==== {file}\n{shown}"
        seen.setdefault(text, path)
    full["box.txt"] = rest
    return {n: shortened(n, t, base) for n, t in full.items()}, full


def _entry(manifest: str, name: str) -> str:
    """Return the lines of one profile in the manifest's text."""
    start = manifest.index(f'\n  "{name}": {{\n') + 1
    end = manifest.index("\n  }", start)
    return manifest[start : manifest.index("\n", end + 1) + 1]
