"""Request for text in OpenAI's API, as a profile's kind of model takes it."""

from appliance.model.profile import Applied, WarmUp, plain_names


def requested_name(applied: Applied) -> str:
    """Return a name by which clients ask for the profile."""
    return plain_names(applied.served, applied.name)[0]


def text_request(applied: Applied, prompt: str) -> tuple[str, dict[str, object]] | None:
    """Return path and body of a request; None: the profile generates no text."""
    model = requested_name(applied)
    if applied.warm_up is WarmUp.CHAT:
        messages = [{"role": "user", "content": prompt}]
        return "/v1/chat/completions", {"model": model, "messages": messages}
    if applied.warm_up is WarmUp.COMPLETION:
        return "/v1/completions", {"model": model, "prompt": prompt}
    return None
