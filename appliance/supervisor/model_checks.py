"""Checks of models: before an operation changes anything, and once a model has started."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.model.claims import Claim
from appliance.model.engine_build import EngineBuild
from appliance.model.errors import PermissionDeniedError, UnitError
from appliance.model.memory import GroupMemory
from appliance.model.observed import Observed
from appliance.model.operations import Operation
from appliance.model.profile import Applied, Catalogue
from appliance.switch.engine_findings import is_asked
from appliance.switch.need import EstimateRow, estimate_row
from appliance.switch.preflight import command_findings, findings, leaving_of
from appliance.switch.preflight_facts import PreflightFinding, Presence, ProfileFacts
from appliance.switch.verification import misplaced, unlocked
from appliance.system.ports import Backend, Host, Peaks, Store, Units


class Preflight:
    """Preflight of an operation: collects findings, and changes nothing."""

    def __init__(self, *, host: Host, units: Units, store: Store, peaks: Peaks) -> None:
        self._host = host
        self._units = units
        self._store = store
        self._peaks = peaks

    async def findings(
        self, operation: Operation, catalogue: Catalogue, observed: Observed
    ) -> tuple[PreflightFinding, ...]:
        """Return every finding on `operation` as the box is now."""
        goal = operation.goal
        claim = Claim(devices=frozenset(goal.claim))
        with_gpus = bool(claim.gpus) or any(catalogue[n].gpus for n in goal.start)
        involved = {*goal.start, *observed.busy()}
        peaks = self._peaks.peaks(involved)
        box, groups, marks, facts = await asyncio.gather(
            self._host.box(with_gpus=with_gpus),
            self._groups(leaving_of(goal, catalogue, observed).running),
            self._store.marks(),
            asyncio.gather(*(self._facts(catalogue[name]) for name in goal.start)),
        )
        found = findings(
            operation.kind,
            goal,
            catalogue=catalogue,
            observed=observed,
            marks=marks,
            facts=dict(zip(goal.start, facts, strict=True)),
            box=box,
            peaks=peaks,
            groups=groups,
        )
        return (*found, *command_findings(operation.kind, goal, observed, box))

    async def _facts(self, applied: Applied) -> ProfileFacts:
        """Return the facts about a profile; its engine is asked about its build if nobody has yet."""
        facts, build = await asyncio.gather(
            self._host.facts(applied), self._host.build(applied, certain=True)
        )
        if build is None and is_asked(applied) and facts.engine is not Presence.MISSING:
            try:
                await self._units.ask_build(applied.name)
                build = await self._host.build(applied)
            except (UnitError, PermissionDeniedError) as error:
                build = EngineBuild(problem=f"it cannot be asked: {error}")
        return replace(facts, build=build)

    async def estimates(
        self, operation: Operation, catalogue: Catalogue
    ) -> Mapping[str, EstimateRow]:
        """Return the parts of the estimated need of each profile that `operation` starts."""
        starting = [catalogue[name] for name in operation.goal.start]
        box = await self._host.box(with_gpus=any(applied.gpus for applied in starting))
        devices = tuple(box.devices.values())
        rows = {applied.name: estimate_row(applied, devices) for applied in starting}
        return {name: row for name, row in rows.items() if row is not None}

    async def _groups(self, leaving: Sequence[Applied]) -> Mapping[str, GroupMemory]:
        """Return the main memory of leaving profiles; those that cannot be read are absent."""
        found: dict[str, GroupMemory] = {}
        if any(applied.gpus for applied in leaving):
            return found  # the memory that a driver pins for GPU profiles would be missing
        for applied in leaving:
            path = await self._units.control_group(applied.name)
            group = await self._host.group(path) if path else None
            if group is not None:
                found[applied.name] = group
        return found


class ModelProof:
    """Proof that a started model answers, from the devices that its profile names."""

    def __init__(self, *, backend: Backend, host: Host, units: Units) -> None:
        self._backend = backend
        self._host = host
        self._units = units

    async def warm_up(self, applied: Applied) -> str:
        """Ask for one real answer. Returns the text to show; raises `BackendError`."""
        return await self._backend.warm_up(applied, timeout_s=applied.deadlines.warm_up_s)

    async def misplacement(self, applied: Applied) -> str | None:
        """Return why a model that answers is not where its profile says; None: no sign of that."""
        problem = None
        if applied.gpus:
            problem = misplaced(applied, await self._host.box(with_gpus=True))
        if problem is None and applied.locks_memory:
            group = await self._host.group(await self._units.control_group(applied.name))
            facts = await self._host.facts(applied)
            problem = unlocked(applied, group, model_bytes=facts.model_bytes)
        return problem
