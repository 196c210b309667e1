"""Making of one profile for a model: of an example, or by a proposal for this box as it is now; and files of new profiles."""

import asyncio
import contextlib
import os
import pwd
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from appliance.cli.box import catalogue_of
from appliance.cli.failures import CliError
from appliance.cli.offline_status import observed_from, show_units
from appliance.cli.paths import find_places
from appliance.install.profile_specs import context_of
from appliance.model.errors import ProfileError, StoreError, UnitError
from appliance.model.model_headers import ModelFileFault, Unread
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.model.spec import Profile
from appliance.model.wording import joined, printable
from appliance.profiles.compilation import model_path
from appliance.profiles.foreign.profile_draft import DraftKey, HostFacts
from appliance.profiles.foreign.profile_drafting import model_title
from appliance.profiles.proposing.engine_choice import EMBEDDED, choose_engine, facts_of
from appliance.profiles.proposing.example_changes import (
    ExampleUse,
    KeyChange,
    example_changes,
    leaves_need_out,
)
from appliance.profiles.proposing.fit_judge import (
    FitJudge,
    Judged,
    ProposalBox,
    ProposalRefusedError,
    proposal_box,
)
from appliance.profiles.proposing.proposal import (
    Proposal,
    ProposalSubject,
    fit_lines,
    proposal_lines,
    propose,
    settings_text,
)
from appliance.settings.tables import Settings
from appliance.switch.memory_findings import Leaving
from appliance.switch.need import EstimateRow
from appliance.system.files.durable import is_there, write_files, write_new_files
from appliance.system.host import LinuxHost
from appliance.system.model_files.reading import NamedModel, named_model, read_model
from appliance.system.profile_files.drafts import changed, comment_lines, keys_text, paths_in
from appliance.system.profile_files.example_library import example_text
from appliance.system.profile_files.loading import SUFFIX, load_profiles, parse_profile
from appliance.system.python_packages import package_version
from appliance.system.toml.file import FaultyFileError, parse_document
from appliance.wire.control import Exit


def read_proposal_box(settings: Settings) -> ProposalBox:
    """Return the memory that a profile could have if every other one had stopped.

    Raises:
        ProposalRefusedError: there are GPUs, and none of them can be read.
        ApplianceError: the size of main memory cannot be read.
    """
    host = LinuxHost(
        gate_dir=settings.gate_dir,
        unit_dir=settings.unit_dir,
        builds_dir=settings.applied_dir / BUILDS,
        margin_bytes=settings.memory.margin,
    )
    facts = asyncio.run(host.box(with_gpus=True))
    catalogue: Catalogue = {}
    with contextlib.suppress(StoreError):
        catalogue = catalogue_of(find_places())
    running = [name for name in _busy(catalogue, settings.unit_dir) if name in catalogue]
    leaving = Leaving(names=frozenset(catalogue), running=tuple(catalogue[n] for n in running))
    return proposal_box(facts, leaving)


def _busy(catalogue: Catalogue, unit_dir: Path) -> tuple[str, ...]:
    """Return the profiles that run; none where systemd does not answer."""
    try:
        return observed_from(show_units(catalogue, str(unit_dir))).busy()
    except UnitError:
        return ()


def host_facts(settings: Settings, output: Path | None, *, replaced: str = "") -> HostFacts:
    """Return what a new profile has to respect: programs, homes, and what other profiles have.

    Args:
        settings: Settings of the box.
        output: Directory that gets the profile; None: none does. In the box's own a name that is taken is told.
        replaced: Name of the profile that the new one replaces; empty: it replaces none.
    """
    others = profiles_of(settings.profiles_dir)
    ports = {p.port: f"{n}{SUFFIX}" for n, p in others.items() if p.port and n != replaced}
    is_own = output is not None and output.resolve() == settings.profiles_dir
    return HostFacts(
        find_program=shutil.which,
        home_of=_home_of,
        taken_ports={**ports, **settings.reserved_ports},
        taken_names=frozenset() if is_own else frozenset(others),
    )


def profiles_of(directory: Path) -> Mapping[str, Profile]:
    """Return the valid profiles in a directory by name; none where it cannot be read."""
    try:
        return load_profiles(directory).profiles
    except ProfileError:
        return {}


def _home_of(user: str) -> str | None:
    name = user or os.environ.get("SUDO_USER", "")
    try:
        return (pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())).pw_dir
    except KeyError:
        return None


def written(texts: Mapping[str, str], directory: Path, *, force: bool) -> dict[str, Path]:
    """Write profiles, all or none of them.

    Args:
        texts: Texts of the profiles by name.
        directory: Directory that gets them.
        force: Whether they replace files that are there.

    Returns:
        Paths of the files by name.
    """
    if not directory.is_dir():
        raise CliError(f"{directory} is no directory: make it first", Exit.FAILED)
    paths = {name: path_in(directory, name) for name in texts}
    contents = {paths[name]: text for name, text in texts.items()}
    if force:
        write_files(contents)
        return paths
    refuse_existing(paths.values())
    write_new_files(contents)
    return paths


def path_in(directory: Path, name: str) -> Path:
    """Return the file of a profile in a directory."""
    return directory / f"{name}{SUFFIX}"


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `CliError` where one of these files is there already."""
    there = [str(path) for path in paths if is_there(path)]
    if there:
        advice = "nothing was written; --force replaces it"
        raise CliError(f"{', '.join(there)} is there already: {advice}", Exit.CONFIG)


_PORT: Final = 8020
"""First port that a proposed profile may get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProfileRequest:
    """Profile that a person asks for."""

    name: str
    example: str | None
    """Example to copy, or a path; None: settings are proposed."""
    model: str | None
    tokens: int | None
    """Context; None: the example's, or the proposal's."""
    changes: tuple[KeyChange, ...]
    """Keys that have values of the person's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProfile:
    """Profile that was made for a model."""

    name: str
    file: str | None = None
    """Path of the file that was written; None: none was."""
    example: str | None
    """Example that it is a copy of; None: its settings are a proposal."""
    engine: str
    text: str
    """Text of the profile."""
    fits: bool | None
    """Whether it fits this box; None: that is not known."""
    estimate: EstimateRow | None
    """Parts of the memory that it needs; None: there is no estimate."""
    notes: list[str]
    """Sentences for a person, such as keys that still need a value."""


class ProfileMaking:
    """Making of one profile; files and the box are read once.

    Args:
        request: Profile that a person asks for.
        settings: Settings of the box.
        host: Programs and ports of the box.
    """

    def __init__(self, request: NewProfileRequest, settings: Settings, host: HostFacts) -> None:
        self._request = request
        self._settings = settings
        self._host = host
        self._context = context_of(settings)
        self._read = cache(read_model)
        self._notes: list[str] = []

    def made(self) -> NewProfile:
        """Return the profile.

        Raises:
            ApplianceError: it cannot be made: of the kind that says who can do what about it.
        """
        example = self._request.example
        return self._proposed() if example is None else self._of_example(example)

    def _proposed(self) -> NewProfile:
        model = self._model
        if model is None:
            raise CliError(
                "name the model: --model PATH, or hf:owner/name in the local cache", Exit.USAGE
            )
        proposal = propose(self._subject(model), self._judge, _profile_of)
        changes = [replace(change, comment="as asked") for change in self._request.changes]
        body = changed(keys_text(proposal.keys), changes)
        judged = self._judge.judged(self._parsed(body))
        if not judged.fits:
            self._notes += fit_lines(judged, self._judge)
        self._tell_of_gpus(proposal)
        return self._finished(body, proposal_lines(proposal, judged, self._judge), judged)

    def _subject(self, model: NamedModel) -> ProposalSubject:
        if isinstance(model.found, Unread):
            raise CliError(self._unread(model, model.found), Exit.FAILED)
        facts = facts_of(model.found)
        given = {change.where: str(change.value) for change in self._request.changes}
        choice = choose_engine(
            facts,
            find_program=self._host.find_program,
            has_embedded=package_version(EMBEDDED) is not None,
            binary=given.get(("binary",)),
            engine=given.get(("engine",)),
        )
        port, _ = self._host.free_port(_PORT)
        return ProposalSubject(
            name=self._request.name,
            model=model.model,
            title=_title(model),
            port=port,
            choice=choice,
            facts=facts,
            asked_tokens=self._request.tokens,
        )

    def _tell_of_gpus(self, proposal: Proposal) -> None:
        if proposal.subject.choice.engine == EMBEDDED and self._judge.box.devices:
            self._notes.append(
                "the embedded engine runs on the CPU: for the GPUs install llama-server, or name it with"
                " --set binary=PATH"
            )

    def _of_example(self, example: str) -> NewProfile:
        text = example_text(example)
        table = _table(text, example)
        model = self._model
        if model is None and str(table.get("model", "")).startswith("/"):
            theirs = printable(str(table["model"]))
            raise CliError(f"name the model: --model PATH (the example has {theirs})", Exit.USAGE)
        use = ExampleUse(
            example=Path(example).stem if example.endswith(SUFFIX) else Path(example).name,
            table=table,
            model=None if model is None else model.model,
            title="" if model is None else _title(model),
        )
        changes = example_changes(
            use,
            self._host,
            os.path.exists,
            name=self._request.name,
            tokens=self._request.tokens,
        )
        body = changed(text, [*changes, *self._request.changes])
        profile = self._parsed(body)
        if leaves_need_out(use) and profile.need.vram_bytes is profile.need.ram_bytes is None:
            self._notes.append(
                "need is left out, which the example has for its own model and cards: the estimate tells it"
            )
        self._tell_missing(body)
        judged, lines = self._judged_example(profile, model)
        head = (f"From the example {use.example}, by appliance profile new.", *lines)
        return self._finished(body, head, judged, example=use.example)

    def _judged_example(
        self, profile: Profile, model: NamedModel | None
    ) -> tuple[Judged | None, Sequence[str]]:
        """Return what a copy needs here with its model, and lines that say so; none: not known."""
        if model is not None and isinstance(model.found, Unread):
            self._notes.append(f"whether it fits is not known: {self._unread(model, model.found)}")
            return None, ()
        try:
            judged = self._judge.judged(profile)
        except ProposalRefusedError as error:
            self._notes.append(f"whether it fits is not known: {error}")
            return None, ()
        lines = tuple(fit_lines(judged, self._judge))
        self._notes += lines
        if judged.row is not None and not judged.fits and model is not None:
            self._tell_alternative(model)
        return judged, lines

    def _tell_alternative(self, model: NamedModel) -> None:
        """Say what would fit in place of a copy that does not."""
        try:
            proposal = propose(self._subject(model), self._judge, _profile_of)
        except (ProposalRefusedError, ProfileError) as error:
            self._notes.append(f"without --from: {error}")
            return
        self._notes.append(
            f"without --from it would be {proposal.subject.choice.engine} with {settings_text(proposal)},"
            " which fits"
        )

    def _tell_missing(self, body: str) -> None:
        """Say which paths of a copy are not on this machine."""
        for way, path in paths_in(_table(body, self._request.name)):
            if way != ("model",) and not os.path.exists(path):  # noqa: PTH110 - any text may be a path
                key = ".".join(way)
                self._notes.append(
                    f"{key} still needs a value: {printable(path)} is not here; --set {key}=…, or correct"
                    f" {self._request.name}{SUFFIX}"
                )

    def _finished(
        self, body: str, lines: Iterable[str], judged: Judged | None, example: str | None = None
    ) -> NewProfile:
        head = [part for line in lines for part in comment_lines(line)]
        text = "".join(f"{line}\n" for line in head) + body
        profile = self._parsed(text)
        self._tell_of_others(profile)
        return NewProfile(
            name=profile.name,
            text=text,
            engine=profile.engine,
            example=example,
            fits=None if judged is None or judged.row is None else judged.fits,
            estimate=None if judged is None else judged.row,
            notes=self._notes,
        )

    def _tell_of_others(self, profile: Profile) -> None:
        others = profiles_of(self._settings.profiles_dir).items()
        same = [n for n, p in others if p.model == profile.model != "" and n != profile.name]
        if same:
            have = "have" if len(same) > 1 else "has"
            self._notes.append(f"{joined(same)} {have} this model, too")

    def _parsed(self, text: str) -> Profile:
        return parse_profile(self._request.name, text.encode())

    def _unread(self, model: NamedModel, unread: Unread) -> str:
        named = printable(model.model)
        if unread.fault is not ModelFileFault.MISSING:
            return f"{named}: {printable(unread.problem)}"
        if named.startswith("hf:"):
            cache_dir = self._settings.hf_home
            return f"{named} is not in {cache_dir}: fetch it first, since a start never downloads"
        return f"there is no {named}"

    @cached_property
    def _model(self) -> NamedModel | None:
        text = self._request.model
        if text is None:
            return None
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CliError(f"{printable(text)} is not UTF-8: rename it", Exit.FAILED) from error
        return named_model(text, self._path_of, self._read)

    def _path_of(self, model: str) -> str | None:
        return model_path(model, str(self._settings.hf_home))

    @cached_property
    def _judge(self) -> FitJudge:
        return FitJudge(read_proposal_box(self._settings), self._context, self._read)


def _title(model: NamedModel) -> str:
    return printable(model_title(model.model))


def _profile_of(name: str, keys: Sequence[DraftKey]) -> Profile:
    return parse_profile(name, keys_text(keys).encode())


def _table(text: str, name: str) -> dict[str, Any]:
    try:
        return dict(parse_document(text.encode()).table)
    except FaultyFileError as error:
        raise ProfileError(f"{printable(name)}: {error}") from error
