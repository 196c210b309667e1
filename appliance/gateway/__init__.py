"""Gateway: the process between clients and engines.

A request goes through `listeners`, `client_connection`, `request_head`, `request_body`, `exchange`
(`routing_table`, `hold_queue`, `engine_pool`), `response` and `reply`; `relay` has the state that all
requests share. `process` assembles the parts.
"""
