"""Alerting: what is wrong, who gets a message, when, and in which words; pure, with the time as an argument.

==========================================================  ==================================================
a look at the box becomes findings                          `snapshot`, `watchdog_memory`, `serving_state`
each rule, with its words, terms and function in one row    `profile_rules`, `engine_rules`, `gpu_rules`,
                                                            `isolation_rules`, `box_rules`; form: `rule`
registry of the rules, and their findings at one look       `rules`
findings become alerts that fire and resolve                `book`, `look_counting`, `evaluation`, `round`
which of them are explained, silenced, delivered            `inhibition`, `silences`, `delivery`
rows for each target, and what is sent next                 `outbox`, `outbox_plan`
words of messages, and tokens of their buttons              `messages`, `box_messages`, `action_tokens`
alerts as screens and sockets show them                     `report`
==========================================================  ==================================================

A new rule is a member of `model.alerts.AlertRule`, and a row with its function in one of the modules of rules; its
runbook is a section of docs/runbooks.md.
"""
