"""Pins: what the appliance writes and says today, byte for byte.

============  ==========================================================================
subject       what is pinned, in ``stored/SUBJECT``
============  ==========================================================================
``apply``     every file that `appliance apply` writes for the profiles in ``boxes``
``changes``   its report, and the lines that differ, after each of many changes
``status``    the status document and its screen, for a box in each of many states
``screens``   what a terminal shows, at 120, 80 and 40 columns and in the C locale
``cli``       status, stdout and stderr of every verb, as text and with ``--json``
``cli-…``     the same of the verbs of root
============  ==========================================================================

`appliance_code` is the only module here that imports the program, so that pins outlive moves and
names. `normal` takes out what differs between machines and runs. ``python -m tests.pins`` compares,
``--write`` stores anew and prints what that changed.
"""
