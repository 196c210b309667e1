"""Chaos: random faults at random moments, and an observer outside our code that counts owners.

`python -m tests.chaos --seed 1 --faults 200` boots a few boxes with pretend GPUs, lets people
switch models in them, and meanwhile kills, stops, starves and unplugs whatever there is. Now and
then it leaves a box alone and looks what has become of it.

==============  ===========================================================================
``scenario``    the models, and a box in which they are installed
``observer``    samples who owns the GPUs (``watch.c``)
``clients``     people with the command line, and what it told them
``processes``   finds what to kill
``faults``      what can go wrong, one function each
``director``    one box: when what happens
``verdicts``    what a box that was left alone must look like
``sabotage``    takes one lock out, to show that a run can fail
==============  ===========================================================================
"""
