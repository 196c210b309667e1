"""Fingerprint of a configuration; another configuration may take another amount of memory."""

import json
from dataclasses import asdict
from hashlib import sha256

from appliance.domain.spec import Profile
from appliance.engines.shared.engine import Invocation


def fingerprint(profile: Profile, invocation: Invocation, weights_bytes: int | None) -> str:
    """Return the SHA-256 in hexadecimal of everything that decides how much memory `profile` takes.

    Args:
        profile: The profile.
        invocation: What its engine is started with.
        weights_bytes: Size of the model's files; None: not known. Another file under the same
            name is another model.
    """
    facts = {
        "argv": invocation.argv,
        "environment": dict(invocation.environment),
        "gpus": profile.gpus,
        "patch": None if profile.patch is None else asdict(profile.patch),
        "weights_bytes": weights_bytes,
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
