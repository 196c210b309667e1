"""Conversations over the unix sockets of our processes: one codec, one server, two clients.

NDJSON, one request a connection. The client speaks first, one line::

    {"protocol": {"min": 1, "max": 1}, "version": "0.1.0", "verb": "switch", "args": {…}}

The server answers one greeting, then events until a closing one::

    {"event": "hello", "protocol": 1, "version": "0.1.0"}
    {"event": "phase", "phase": "drain", "state": "started", "text": "…", "ms": 0, "rolling_back": false}
    {"event": "result", "exit": 0, "outcome": "done", "message": "…", …}

`result` and `error` close every conversation. When the two sides share no protocol version the server
answers one `error` whose message names both versions and what to restart. Fields that one side
does not know are ignored.

A new socket is a module of `appliance.wire` with a `codec.SocketTable`: records of its requests
by verb, records of its events by name, and the words for its server. A record is a frozen Struct of
msgspec (`appliance.model.record`), and the annotations of its fields, with their bounds, are what is
checked on the way in. The server is `server.serve_conversations` with a function that yields the
events of each request; clients are `client.Conversation` and `client.ask` for the command line,
`async_client.open_conversation` for processes. tests/unit/wire/test_socket_tables.py checks each
table.
"""
