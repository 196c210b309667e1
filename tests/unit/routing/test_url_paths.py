"""Classes of paths."""

import pytest

from appliance.model.gateway import Api
from appliance.routing.refusals import path_not_exposed
from appliance.routing.url_paths import PathClass, PathError, classify_path


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", Api.CHAT),
        ("/chat/completions", Api.CHAT),
        ("/v1/chat/completions/input_tokens", Api.CHAT),
        ("/v1/chat/completions/render", Api.CHAT),
        ("//v1/./chat//completions/", Api.CHAT),
        ("/api/chat", Api.OLLAMA),
        ("/API//Tags/", Api.OLLAMA),
        ("/api/blobs/sha256:0", Api.OLLAMA),
        ("/api/%70ull", Api.OLLAMA),
        ("/api", Api.OTHER),
        ("/api/v1/generate", Api.OTHER),
        ("/v1/api/chat", Api.OTHER),
        ("/invocations", Api.CHAT),
        ("/v1/completions", Api.COMPLETIONS),
        ("/completion", Api.COMPLETIONS),
        ("/infill", Api.COMPLETIONS),
        ("/v1/responses", Api.RESPONSES),
        ("/v1/responses/resp_1/cancel", Api.RESPONSES),
        ("/v1/messages", Api.ANTHROPIC),
        ("/v1/messages/count_tokens", Api.ANTHROPIC),
        ("/v1/chat", Api.OTHER),
        ("/v1/embeddings", Api.OTHER),
        ("/v1/audio/transcriptions", Api.OTHER),
        ("/v2/rerank", Api.OTHER),
        ("/tokenize", Api.OTHER),
        ("/apply-template", Api.OTHER),
        ("/health", Api.OTHER),
        ("/v1/realtime", Api.OTHER),
        ("/", Api.OTHER),
        ("/v1", Api.OTHER),
    ],
)
def test_a_path_tells_its_api(path: str, api: Api) -> None:
    """The API is found with or without a version; every other path has none."""
    assert classify_path("POST", path) == PathClass(api=api)


@pytest.mark.parametrize(
    "path",
    [
        *("/slots", "/slots/0", "/metrics", "/lora-adapters", "/lora-adapters-list"),
        *("/cors-proxy", "/tools", "/models/load", "/models/unload", "/v1/models/load"),
        *("/models/sse", "/v1/streams", "/v1/streams/lookup", "/v1/stream/conversation"),
        *("/v1/chat/completions/control", "/chat/completions/control"),
        *("/kv_event_sources", "/kv_events", "/kv_transfer", "/release_kv_cache_memory"),
        *("/inference/v1/config", "/inference/v1/generate", "/docs", "/docs/oauth2-redirect"),
        *("/redoc", "/openapi.json", "/pd_role_switch", "/open_session", "/close_session"),
        *("/get_transfer_engine_info", "/register_transfer_engine_info"),
        *("/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/is_paused"),
        *("/abort_requests", "/collective_rpc", "/server_info", "/reconfigure", "/load"),
        *("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache"),
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter"),
        *("/start_profile", "/stop_profile", "/scale_elastic_ep", "/tokenizer_info"),
        *("/init_weight_transfer_engine", "/start_weight_update", "/update_weights"),
        *("/finish_weight_update", "/update_weight_version", "/weight_checker", "/weight_info"),
        *("/flush_cache", "/freeze_gc", "/slow_down", "/configure_logging", "/v1/loads"),
        *("/update_weights_from_disk", "/update_weights_from_tensor", "/get_weights_by_name"),
        *("/init_weights_update_group", "/release_memory_occupation"),
        *("/resume_memory_occupation", "/start_expert_distribution_record", "/abort_request"),
        *("/pause_generation", "/continue_generation", "/hicache/storage-backend"),
        *("/clear_hicache_storage_backend", "/set_internal_state", "/get_server_info"),
        *("/debug/anything", "/admin"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
def test_paths_that_govern_an_engine_are_known(method: str, path: str) -> None:
    """Admin paths of llama-server, vLLM and SGLang are found, whatever the method."""
    assert classify_path(method, path).is_admin


@pytest.mark.parametrize(
    "path",
    [
        "/slots/",
        "//slots",
        "/./slots",
        "/x/../slots",
        "/../slots",
        "/x/%2e%2e/slots",
        "/%73lots",
        "/%2573lots",
        "/SLOTS",
        "/Slots/0",
        "/slots;x=1/0",
        "/slots%2F0",
        "\\slots".replace("\\", "/\\"),
        "/v1//slots",
        "/v1/../slots",
        "/v1/chat/completions/../../../slots",
        "/models%2Fload",
        "/v1/chat/completions/%63ontrol",
        "/v1/chat//completions/x/../CONTROL/",
        "/OpenAPI.json",
        "/inference%2Fv1%2Fconfig",
    ],
)
def test_a_governing_path_cannot_be_disguised(path: str) -> None:
    """The plainest form of a path is classified."""
    assert classify_path("GET", path).is_admin


@pytest.mark.parametrize(
    ("method", "path", "is_admin"),
    [
        ("GET", "/props", False),
        ("HEAD", "/props", False),
        ("POST", "/props", True),
        ("GET", "/models", False),
        ("GET", "/v1/models", False),
        ("POST", "/models", True),
        ("DELETE", "/models", True),
        ("POST", "/v1/models", True),
        ("DELETE", "/v1/models/x", True),
    ],
)
def test_writing_is_for_admins_where_reading_is_not(method: str, path: str, is_admin: bool) -> None:  # noqa: FBT001
    """Writing properties, and the list of models of an engine that loads several, is for admins."""
    assert classify_path(method, path).is_admin is is_admin


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/models", None),
        ("/models", None),
        ("/v1/models/", None),
        ("/v1/models/Genesis", "Genesis"),
        ("/v1/models/org/name", "org/name"),
        ("/v1/models/org%2Fname", "org/name"),
        ("/v1/models/load-balanced", "load-balanced"),
    ],
)
def test_the_list_of_models_is_told_from_an_entry(path: str, model: str | None) -> None:
    """Names keep their capitals; slashes in them may be escaped."""
    assert classify_path("GET", path) == PathClass(is_model_list=True, model=model)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "v1/models",
        "http://x/v1/models",
        "/%",
        "/%zz",
        "/a%00",
        "/a%0d%0ab",
        "/a b",
        "/a%20b",
        "/a#b",
        "/a\x7f",
        "/%25252573lots",
    ],
)
def test_a_path_that_no_honest_client_sends_is_refused(path: str) -> None:
    """A path whose meaning engines could disagree about is refused."""
    with pytest.raises(PathError):
        classify_path("GET", path)


@pytest.mark.parametrize("path", ["/v1/embeddings%25x", "/v1/caf\u00e9", "/%c3%a9", "/%ff"])
def test_odd_but_honest_paths_pass(path: str) -> None:
    """Percent signs, other alphabets and bytes that are no UTF-8 pass."""
    assert classify_path("GET", path) == PathClass()


def test_the_refusal_of_an_admin_path_names_it() -> None:
    """The message contains the beginning of the path."""
    refusal = path_not_exposed("/slots" + "x" * 1000)
    assert refusal.status == 403
    assert refusal.message.startswith("/slotsxxx")
    assert len(refusal.message) < 400
