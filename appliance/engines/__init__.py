"""Engines: one module each, however long, with everything that differs between them; their registry.

An engine is an `Engine` (see `appliance.engines.shared.engine`). Whatever the engine, these are
always the appliance's: host, port, metrics on, no fitting behind the owner's back, offline, CORS
shut.
"""

from collections.abc import Mapping
from typing import Final

from appliance.engines import any_command, ik_llama_server, llama_server, sglang, vllm, xllamacpp
from appliance.engines.shared.engine import Engine

ENGINES: Final[Mapping[str, Engine]] = {
    engine.name: engine
    for engine in (
        llama_server.ENGINE,
        ik_llama_server.ENGINE,
        vllm.ENGINE,
        sglang.ENGINE,
        xllamacpp.ENGINE,
        any_command.ENGINE,
    )
}
"""Engines by name, in the order in which messages and pages list them."""
