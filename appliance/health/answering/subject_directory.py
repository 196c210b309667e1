"""Directory of what alerts may be about, by the names that people type."""

from collections.abc import Callable, Iterable

from appliance.alerts.book import AlertBook
from appliance.alerts.report import open_states
from appliance.model.alerts import BOX, Subject, SubjectKind
from appliance.model.errors import UnknownProfileError
from appliance.model.wording import no_such_profile


class SubjectDirectory:
    """Directory of profiles, watches, GPUs and the box.

    Args:
        book: Function that returns the alert book, which knows GPUs and alerts.
        profiles: Function that returns the names of the applied profiles.
        watches: Names of the ``[[watch]]`` entries.
    """

    def __init__(
        self,
        book: Callable[[], AlertBook],
        profiles: Callable[[], Iterable[str]],
        watches: Iterable[str],
    ) -> None:
        self._book = book
        self._profiles = profiles
        self._watches = frozenset(watches)

    def subject(self, name: str) -> Subject:
        """Return the subject of a name: of a profile, watch or GPU, ``box``, or the id of an alert.

        Raises:
            UnknownProfileError: there is none.
        """
        profiles = frozenset(self._profiles())
        if name in profiles:
            return Subject(kind=SubjectKind.PROFILE, name=name)
        if name in self._watches:
            return Subject(kind=SubjectKind.WATCH, name=name)
        if name == BOX.text:
            return BOX
        gpus = (one for one, _ in self._book().states if one.kind is SubjectKind.GPU)
        found = self.subject_of_alert(name) or next((one for one in gpus if one.name == name), None)
        if found is None:
            raise UnknownProfileError(no_such_profile(name, profiles, watches=self._watches))
        return found

    def subject_of_alert(self, alert: str) -> Subject | None:
        """Return the subject of an alert that is not over; None: there is none of this id."""
        states = open_states(self._book())
        return next((state.subject for state in states if state.alert == alert), None)

    def window_name(self, name: str) -> str:
        """Return the name by which a planned window knows a subject. Raises as `subject`."""
        subject = self.subject(name)
        return subject.name or BOX.text
