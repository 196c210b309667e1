"""OpenAPI document of the status API, with the schemas of the daemons' documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from appliance.web.api.answers import TYPES
from appliance.web.api.openapi_schemas import SchemaBook


def openapi_document(application: FastAPI) -> dict[str, Any]:
    """Return the document, which is made once, when somebody asks for it."""
    if application.openapi_schema is None:
        document = get_openapi(
            title=application.title,
            version=application.version,
            description=application.description,
            routes=application.routes,
        )
        book = SchemaBook()
        for kind in TYPES:
            book.of(kind)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas |= dict(sorted(book.schemas.items()))
        application.openapi_schema = document
    return application.openapi_schema
