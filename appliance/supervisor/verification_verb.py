"""Verb that compares engines with their profiles, whatever was compared before."""

from appliance.model.status import VerificationRow
from appliance.status.verification import differences, failure_text
from appliance.supervisor.ownership import Supervisor
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent

_OUTCOME = "verified"


async def verification_result(supervisor: Supervisor, name: str | None) -> ResultEvent:
    """Return how the engines compare: of one profile, or of all that serve.

    Raises:
        UnknownProfileError: `name` is not applied.
        UnitError: systemd does not tell when an engine was started.
    """
    if name is not None:
        supervisor.check_names((name,))
    catalogue, observed = supervisor.last_look()
    serving = [one for one in observed.serving() if one in catalogue and name in {None, one}]
    rows = {one: await supervisor.verifier.verify(catalogue[one]) for one in serving}
    if not rows:
        message = "nothing serves" if name is None else f"{name} does not serve"
        return ResultEvent(exit=Exit.NOTHING_SERVING, outcome=_OUTCOME, message=message)
    failures = list(filter(None, (failure_text(one, row) for one, row in rows.items())))
    return ResultEvent(
        exit=Exit.FAILED if failures else Exit.OK,
        outcome=_OUTCOME,
        message="; ".join(failures) or _agreement(list(rows.values())),
        details={"profiles": [{"name": one, "verification": row} for one, row in rows.items()]},
    )


def _agreement(rows: list[VerificationRow]) -> str:
    if any(map(differences, rows)):
        return "nothing differs but what may"
    if not any(fact.state == "agrees" for row in rows for fact in row.facts):
        return "no engine reports what could be compared"
    return "what engines report is what their profiles declare"
