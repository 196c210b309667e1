"""OpenAPI document of the status API, with the schemas of the daemons' documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from appliance.web.api.answer_examples import EXAMPLES
from appliance.web.api.answers import SCHEMAS, TYPES
from appliance.wire.json_schemas import SchemaDeriver


def openapi_document(application: FastAPI) -> dict[str, Any]:
    """Return the document, which is made once, when somebody asks for it."""
    if application.openapi_schema is None:
        document = get_openapi(
            title=application.title,
            version=application.version,
            description=application.description,
            routes=application.routes,
        )
        deriver = SchemaDeriver(place=SCHEMAS, are_records_whole=True)
        for kind in TYPES:
            deriver.schema(kind)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas |= dict(sorted(deriver.definitions.items()))
        for kind, example in EXAMPLES.items():
            schemas[kind.__name__]["examples"] = [example]
        application.openapi_schema = document
    return application.openapi_schema
